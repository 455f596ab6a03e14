// The embedded engine with a real model: text in, text out.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <llama.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "engine/choices.h"
#include "engine/json_grammar.h"
#include "engine/llama/llama_engine.h"

namespace inferscale {
namespace {

// With "?" for every character that is not ASCII.
std::string AsciiOnly(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) out += c;
    if (byte >= 0xC0) out += '?';
  }
  return out;
}

class ModelTest : public testing::Test {
 protected:
  static std::unique_ptr<Engine> Open(const std::string& path) {
    LlamaEngineOptions options;
    options.model_path = path;
    options.threads = 1;
    options.context_tokens = 1024;
    auto engine = OpenLlamaEngine(options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }
  // The same weights in f16, so that activations are not rounded to 8 bits.
  static std::unique_ptr<Engine> OpenInFullPrecision(const char* model) {
    namespace fs = std::filesystem;
    const fs::path path = fs::path(testing::TempDir()) / fmt::format("model-{}.gguf", getpid());
    llama_model_quantize_params params = llama_model_quantize_default_params();
    params.ftype = LLAMA_FTYPE_MOSTLY_F16;
    params.allow_requantize = true;
    const uint32_t code = llama_model_quantize(model, path.c_str(), &params);
    EXPECT_EQ(code, 0U);
    auto engine = code == 0 ? Open(path) : nullptr;
    fs::remove(path);  // what is mapped stays
    return engine;
  }

  static void ExpectPassedSelfTest(const ModelInfo& info) {
    EXPECT_TRUE(info.injection) << info.self_test.summary;
    EXPECT_TRUE(info.self_test.passed);
    for (const double error : info.self_test.layer_error) EXPECT_LT(error, 1e-5);
    EXPECT_EQ(info.self_test.layer_error.size(), info.shape.layers);
    EXPECT_FALSE(info.fingerprint.IsZero());
    EXPECT_FALSE(info.name.empty());
  }

  struct Composition {
    Prompt plain;
    Prompt injected;
    std::vector<std::vector<EncodedRecord>> records;
  };

  // Header, facts and question; all but the question captured from one pass, as its own records.
  static Composition Compose(Engine& engine, const std::vector<std::string>& facts,
                             const std::string& question) {
    const PromptFormat& format = engine.format();
    Composition made;
    EncodeItem item;
    item.tokens = format.Header("Answer from these facts.").value();
    item.captures.push_back({0, static_cast<uint32_t>(item.tokens.size())});
    for (const std::string& fact : facts) {
      const auto tokens = format.Text(fact).value();
      item.captures.push_back(
          {static_cast<uint32_t>(item.tokens.size()), static_cast<uint32_t>(tokens.size())});
      item.tokens.insert(item.tokens.end(), tokens.begin(), tokens.end());
    }
    auto encoded = engine.Encode({.prefix = {}, .items = {item}});
    if (!encoded) {
      ADD_FAILURE() << encoded.error().message;
      return made;
    }
    made.records = std::move(encoded->records);
    made.plain.tokens = item.tokens;
    const auto tail = format.Tail(question).value();
    made.plain.tokens.insert(made.plain.tokens.end(), tail.begin(), tail.end());
    made.injected = made.plain;
    for (size_t i = 0; i < item.captures.size(); ++i) {
      PromptSpan span;
      span.first = item.captures[i].first;
      span.tokens = item.captures[i].tokens;
      const EncodedRecord& record = made.records[0][i];
      span.record = {engine.info().shape, record.tokens, record.data.data()};
      made.injected.spans.push_back(span);
    }
    return made;
  }

  struct Answer {
    std::string text;
    std::vector<Token> tokens;
    FinishReason reason = FinishReason::kCancelled;
    GenerateStats stats;
  };
  static Answer Generate(Engine& engine, const Prompt& prompt,
                         Sampling sampling = {.max_tokens = 16}) {
    GenerateRequest request;
    request.prompt = prompt;
    request.sampling = std::move(sampling);
    auto generation = engine.Start(std::move(request));
    Answer answer;
    if (!generation) {
      ADD_FAILURE() << generation.error().message;
      return answer;
    }
    while (true) {
      const auto piece = (*generation)->Next();
      if (!piece) {
        ADD_FAILURE() << piece.error().message;
        break;
      }
      if (!*piece) break;
      EXPECT_FALSE((*piece)->empty());
      answer.text += **piece;
    }
    answer.tokens = (*generation)->tokens();
    answer.reason = (*generation)->finish_reason();
    answer.stats = (*generation)->stats();
    return answer;
  }

  struct Judgement {
    double difference = 0;  // between the largest logits of plain and injected
    double largest = 0;
    Answer plain;
    Answer injected;
  };
  static Judgement Judge(Engine& engine, const Composition& made) {
    Judgement judgement;
    const auto continuation = engine.format().Text("Ana lives in Porto.").value();
    const auto expected = engine.Score(made.plain, continuation, 0);
    const auto actual = engine.Score(made.injected, continuation, 0);
    if (!expected || !actual) {
      ADD_FAILURE() << "no scores";
      return judgement;
    }
    for (size_t i = 0; i < expected->size(); ++i) {
      for (size_t j = 0; j < (*expected)[i].size(); ++j) {
        const double a = double{(*expected)[i][j]};
        const double difference = std::abs(a - double{(*actual)[i][j]});
        judgement.difference = std::max(judgement.difference, difference);
        judgement.largest = std::max(judgement.largest, std::abs(a));
      }
    }
    RecordProperty("difference", std::to_string(judgement.difference));
    RecordProperty("largest", std::to_string(judgement.largest));
    judgement.plain = Generate(engine, made.plain);
    judgement.injected = Generate(engine, made.injected);
    return judgement;
  }

  const std::vector<std::string> facts_ = {"Ana lives in Porto.\n", "Her dog is called Bolt.\n",
                                           "She plays the cello.\n"};
};

class RealModel : public ModelTest {
 protected:
  static void SetUpTestSuite() {
    const char* path = std::getenv("INFERSCALE_MODEL");
    if (path == nullptr) return;
    engine_ = Open(path).release();
    ASSERT_NE(engine_, nullptr);
  }
  static void TearDownTestSuite() { delete engine_; }
  void SetUp() override {
    if (engine_ == nullptr) GTEST_SKIP() << "INFERSCALE_MODEL is not set";
  }

  static Engine* engine_;
};

Engine* RealModel::engine_ = nullptr;

TEST_F(RealModel, PassesItsSelfTest) { ExpectPassedSelfTest(engine_->info()); }

TEST_F(RealModel, CompositionOfOnePrefillGivesItsLogitsAndAnswer) {
  const Composition made = Compose(*engine_, facts_, "Where does Ana live?");
  const auto [difference, largest, plain, injected] = Judge(*engine_, made);
  // 1.0 of 35 was seen. Weights of 4 bits make ggml round activations to 8 bits, where a rounding
  // that falls to the other side is a step of 1/127: whatever differs at all soon differs by that.
  EXPECT_LT(difference, 0.05 * largest) << "largest logit " << largest;
  // So from the first close call on the answers may part, but not before "Ana lives in Porto".
  const std::string answer = "Ana lives in Porto";
  EXPECT_EQ(plain.text.substr(0, answer.size()), answer);
  EXPECT_EQ(injected.text.substr(0, answer.size()), answer);
  EXPECT_GT(injected.stats.injected_tokens, injected.stats.prefilled_tokens);
  EXPECT_EQ(injected.stats.injected_tokens + injected.stats.prefilled_tokens,
            made.plain.tokens.size());
}

// What remains without the rounding of activations is that of keys and values to f16, once more
// than in a prefill: 0.034 of 35 was seen.
TEST_F(RealModel, InFullPrecisionInjectionEqualsPrefill) {
  const auto engine = OpenInFullPrecision(std::getenv("INFERSCALE_MODEL"));
  ASSERT_NE(engine, nullptr);
  const Composition made = Compose(*engine, facts_, "Where does Ana live?");
  const auto [difference, largest, plain, injected] = Judge(*engine, made);
  EXPECT_LT(difference, 3e-3 * largest) << "largest logit " << largest;
  EXPECT_GT(difference, 0) << "was anything injected?";
  EXPECT_EQ(plain.tokens, injected.tokens);
}

TEST_F(RealModel, EndOfTurnIsReportedButNotShown) {
  Prompt prompt{.tokens = engine_->format().Header("Answer with one word.").value(), .spans = {}};
  const auto tail = engine_->format().Tail("Say yes.").value();
  prompt.tokens.insert(prompt.tokens.end(), tail.begin(), tail.end());
  const Answer answer = Generate(*engine_, prompt, {.max_tokens = 60});
  ASSERT_EQ(answer.reason, FinishReason::kStop);
  EXPECT_EQ(answer.text.find("<|im_end|>"), std::string::npos);
  EXPECT_EQ(engine_->Detokenize(answer.tokens), answer.text);
  EXPECT_EQ(engine_->Detokenize(std::span(&answer.tokens.back(), 1)), "");
}

TEST_F(RealModel, AGrammarIsKept) {
  Prompt prompt;
  prompt.tokens = engine_->format().Header("Answer.").value();
  const auto tail = engine_->format().Tail("How are you?").value();
  prompt.tokens.insert(prompt.tokens.end(), tail.begin(), tail.end());
  const std::regex wanted("(yes|no), [0-9]+ \"[^\"]{1,3}\"\\.");
  for (uint64_t seed = 0; seed < 20; ++seed) {
    GenerateRequest request{.prompt = prompt, .sampling = {}};
    request.sampling.grammar =
        R"(root ::= ("yes" | "no") ", " [0-9] ("5" | "7")+ " \"" [^"\x00-\x1f]{1,3} "\".")";
    request.sampling.temperature = seed == 0 ? 0.0F : 3.0F;
    request.sampling.seed = seed;
    request.sampling.max_tokens = 200;
    auto generation = engine_->Start(std::move(request)).value();
    std::string answer;
    while (true) {
      const auto piece = generation->Next().value();
      if (!piece) break;
      answer += *piece;
    }
    if (generation->finish_reason() != FinishReason::kStop) continue;  // a long number
    // A character may have several bytes.
    const std::string ascii = AsciiOnly(answer);
    EXPECT_TRUE(std::regex_match(ascii, wanted)) << seed << ": " << answer;
  }
  GenerateRequest wrong{.prompt = prompt, .sampling = {}};
  wrong.sampling.grammar = "root ::= (";
  const auto refused = engine_->Start(std::move(wrong));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalid);
}

TEST_F(RealModel, LogprobsAreThoseOfTheScores) {
  const Composition made = Compose(*engine_, facts_, "Where does Ana live?");
  GenerateRequest request{.prompt = made.plain, .sampling = {.max_tokens = 12}};
  request.sampling.temperature = 1.5F;
  request.sampling.seed = 5;
  request.sampling.logprobs = 4;
  auto generation = engine_->Start(std::move(request)).value();
  std::vector<PlaceLogprobs> places;
  std::string text;
  while (true) {
    const auto piece = generation->Next().value();
    for (PlaceLogprobs& place : generation->TakeLogprobs()) places.push_back(std::move(place));
    if (!piece) break;
    text += *piece;
  }
  std::vector<Token> tokens = generation->tokens();
  if (generation->finish_reason() == FinishReason::kStop) tokens.pop_back();
  ASSERT_EQ(places.size(), tokens.size());
  ASSERT_GT(tokens.size(), 3U);
  constexpr double kRounding = 1e-5;  // of a float below 128
  // The same logits again: one token after another over what a session holds, so that all is
  // computed in the same batches.
  const uint64_t session = uint64_t{1} << 41;
  Prompt prompt = made.plain;
  std::string bytes;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto scores = engine_->Score(prompt, std::span(&tokens[i], 1), session).value();
    std::vector<float> logits = scores[0];
    double sum = 0;
    for (const float x : logits) sum += std::exp(double{x});
    const double logprob = double{logits[static_cast<size_t>(tokens[i])]} - std::log(sum);
    EXPECT_NEAR(places[i].chosen.logprob, logprob, kRounding) << i;
    std::sort(logits.rbegin(), logits.rend());
    ASSERT_EQ(places[i].top.size(), 4U);
    for (size_t k = 0; k < 4; ++k) {
      EXPECT_NEAR(places[i].top[k].logprob, double{logits[k]} - std::log(sum), kRounding) << i;
    }
    bytes += places[i].chosen.text;
    prompt.tokens.push_back(tokens[i]);
  }
  engine_->EndSession(session);
  EXPECT_EQ(AsciiOnly(bytes), AsciiOnly(text));
}

TEST_F(RealModel, ChoicesAreThoseOfTheirSeeds) {
  const Composition made = Compose(*engine_, facts_, "Where does Ana live?");
  GenerateRequest request{
      .prompt = made.injected, .sampling = {.max_tokens = 12}, .session = uint64_t{1} << 40};
  request.sampling.temperature = 1.5F;
  request.sampling.seed = 3;
  std::vector<std::string> streamed(3);
  const auto all = GenerateChoices(*engine_, request, 3, [&](const AnswerPiece& piece) {
    streamed[piece.choice] += piece.text;
    return true;
  });
  engine_->EndSession(request.session);
  ASSERT_TRUE(all) << all.error().message;
  ASSERT_EQ(all->choices.size(), 3U);
  // One by one over a sequence that is held too, so that all is computed in the same batches.
  GenerateRequest alone = request;
  alone.session = request.session + 1;
  uint32_t generated = 0;
  for (uint32_t i = 0; i < 3; ++i) {
    alone.sampling.seed = request.sampling.seed + i;
    const auto one = GenerateChoices(*engine_, alone, 1, nullptr);
    ASSERT_TRUE(one) << one.error().message;
    EXPECT_EQ(all->choices[i].text, one->choices[0].text) << i;
    EXPECT_EQ(streamed[i], one->choices[0].text) << i;
    generated += one->stats.generated_tokens;
    EXPECT_EQ(one->stats.prefilled_tokens, i == 0 ? all->stats.prefilled_tokens : 1);
  }
  engine_->EndSession(alone.session);
  EXPECT_NE(streamed[0], streamed[1]);
  EXPECT_EQ(all->stats.generated_tokens, generated);
  EXPECT_GT(all->stats.injected_tokens, 0U);
  // Nobody listens any more.
  const auto cancelled =
      GenerateChoices(*engine_, request, 3, [](const AnswerPiece&) { return false; });
  engine_->EndSession(request.session);
  ASSERT_TRUE(cancelled);
  for (const Choice& choice : cancelled->choices) {
    EXPECT_EQ(choice.finish, FinishReason::kCancelled);
  }
}

TEST_F(RealModel, AJsonObjectIsJson) {
  const Composition made = Compose(*engine_, facts_, "Tell me about Ana, in JSON.");
  for (uint64_t seed = 0; seed < 3; ++seed) {
    Sampling sampling{.max_tokens = 60};
    sampling.grammar = kJsonObjectGrammar;
    sampling.temperature = static_cast<float>(seed) * 0.5F;
    sampling.seed = seed;
    const Answer answer = Generate(*engine_, made.plain, sampling);
    EXPECT_TRUE(answer.text.starts_with("{")) << answer.text;
    // What was cut short is the beginning of such an object.
    boost::json::stream_parser parser;
    boost::json::error_code error;
    parser.write(answer.text, error);
    EXPECT_FALSE(error) << seed << answer.text;
    EXPECT_TRUE(answer.reason != FinishReason::kStop || parser.done()) << seed << answer.text;
  }
}

TEST_F(RealModel, AJsonSchemaIsKeptTo) {
  const Composition made = Compose(*engine_, facts_, "Tell me about Ana, in JSON.");
  for (uint64_t seed = 0; seed < 3; ++seed) {
    Sampling sampling{.max_tokens = 60};
    sampling.json_schema =
        R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer"}, "pets": {"type": "array", "maxItems": 2, "items":
            {"enum": ["cat", "dog"]}}}, "required": ["name", "age", "pets"]})";
    sampling.temperature = static_cast<float>(seed);
    sampling.seed = seed;
    const Answer answer = Generate(*engine_, made.plain, sampling);
    ASSERT_EQ(answer.reason, FinishReason::kStop) << answer.text;
    const auto object = boost::json::parse(answer.text).as_object();
    EXPECT_EQ(object.size(), 3U) << answer.text;
    EXPECT_TRUE(object.at("name").is_string() && object.at("age").is_int64()) << answer.text;
    EXPECT_LE(object.at("pets").as_array().size(), 2U) << answer.text;
  }
  GenerateRequest schema{.prompt = made.plain, .sampling = {}};
  schema.sampling.json_schema = R"({"pattern": "a"})";
  const auto refused = engine_->Start(std::move(schema));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
}

TEST_F(RealModel, StopStringEndsTheAnswer) {
  const Composition made = Compose(*engine_, facts_, "Where does Ana live?");
  const Answer whole = Generate(*engine_, made.injected);
  ASSERT_GT(whole.text.size(), 8U);
  // Across a border between tokens: from the middle of the text.
  const std::string stop = whole.text.substr(5, 6);
  const Answer cut = Generate(*engine_, made.injected, {.max_tokens = 16, .stop = {stop}});
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(stop)));
  EXPECT_EQ(cut.reason, FinishReason::kStop);
  EXPECT_LT(cut.tokens.size(), whole.tokens.size());
}

// Gemma 3: two kinds of layers, each with its own RoPE, most of which see 512 tokens. A base model.
class WindowedModel : public ModelTest {
 protected:
  void SetUp() override {
    path_ = std::getenv("INFERSCALE_MODEL_SWA");
    if (path_ == nullptr) {
      GTEST_SKIP() << "INFERSCALE_MODEL_SWA is not set; scripts/setup.sh test fetches a model";
    }
  }
  const char* path_ = nullptr;
};

TEST_F(WindowedModel, InjectionEqualsPrefillWithinAndBeyondTheWindow) {
  const auto engine = OpenInFullPrecision(path_);
  ASSERT_NE(engine, nullptr);
  ExpectPassedSelfTest(engine->info());
  EXPECT_NE(engine->info().self_test.summary.find("layers see 512 tokens"), std::string::npos)
      << engine->info().self_test.summary;
  std::vector<std::string> facts = facts_;
  for (const size_t count : {size_t{3}, size_t{60}}) {
    while (facts.size() < count) {
      facts.push_back(fmt::format("Room {} has {} chairs.\n", facts.size(), facts.size() * 7 % 90));
    }
    const Composition made = Compose(*engine, facts, "Where does Ana live?");
    if (count > 3) {
      EXPECT_GT(made.plain.tokens.size(), 600U);
    }
    const auto [difference, largest, plain, injected] = Judge(*engine, made);
    // 0.075 of 24 was seen with sixty facts.
    EXPECT_LT(difference, 8e-3 * largest) << count << " facts, largest logit " << largest;
    EXPECT_GT(difference, 0) << "was anything injected?";
    EXPECT_EQ(plain.tokens, injected.tokens);
    EXPECT_GT(injected.stats.injected_tokens, injected.stats.prefilled_tokens);
    EXPECT_NE(injected.text.find("Porto"), std::string::npos) << injected.text;
  }
}

}  // namespace
}  // namespace inferscale
