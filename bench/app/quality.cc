// How near is injected KV to full prefill? For every window strategy, episode size and number of
// plain facts: mean KL(full prefill || KV) over the positions that predict the answer's tokens, how
// often the most likely token is the same, and what encoding costs. Beside it the same for full
// prefill of the same episodes in another order: what order alone does.
//
//   quality CONVERSATION.jsonl QUESTIONS.jsonl [--turns N] [--questions N] [--facts K]
//           [--threads N] [--windows "isolated anchor(20) ..."] [--sizes "6 3 1"]
//           [--codec int8|fp8]
//
// With --codec it tells instead what storing KV quantised does, and nothing else: mean
// KL(unquantised KV || quantised KV) over the same positions, the same facts injected both times.
//
// With --turns only the first N turns are remembered, and questions that need later ones are left
// out.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <sstream>

#include "app/app.h"
#include "app/fidelity.h"
#include "memory/import.h"

namespace inferscale {
namespace {

[[noreturn]] void Die(const std::string& message) {
  fmt::print(stderr, "quality: {}\n", message);
  std::exit(1);
}

template <typename T>
T Must(Result<T> result, std::string_view what) {
  if (!result) Die(fmt::format("{}: {}", what, result.error().message));
  return std::move(*result);
}

struct Question {
  std::string text;
  std::string answer;
};

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) Die(path + " can't be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

// The number of a turn: 12 for "t012".
size_t TurnNumber(const boost::json::value& id) {
  return std::stoul(std::string(id.as_string().c_str()).substr(1));
}

std::vector<Question> ReadQuestions(const std::string& path, size_t limit, size_t turns) {
  std::vector<Question> questions;
  std::istringstream lines(ReadFile(path));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const boost::json::object row = boost::json::parse(line).as_object();
    const boost::json::array& evidence = row.at("evidence").as_array();
    const bool answerable =
        !evidence.empty() && std::all_of(evidence.begin(), evidence.end(),
                                         [&](const auto& id) { return TurnNumber(id) <= turns; });
    if (!answerable) continue;
    questions.push_back(
        {row.at("question").as_string().c_str(), row.at("answer").as_string().c_str()});
  }
  // Spread over the file, so that a few questions are of every kind.
  std::vector<Question> chosen;
  const size_t count = std::min(limit, questions.size());
  for (size_t i = 0; i < count; ++i) chosen.push_back(questions[i * questions.size() / count]);
  return chosen;
}

std::vector<Fact> ReadConversation(const std::string& path, size_t turns) {
  Fact defaults;
  defaults.scope.user = "sample";
  std::vector<Fact> facts;
  const Status read = ParseImport(ReadFile(path), ImportFormat::kJsonl, defaults,
                                  {[&](Fact&& fact) -> Status {
                                     facts.push_back(std::move(fact));
                                     return {};
                                   },
                                   [](const Error& error) { Die(error.message); }});
  if (!read) Die(read.error().message);
  if (facts.size() > turns) facts.resize(turns);
  return facts;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Of one question: means over the answer's positions.
struct Nearness {
  double kl = 0;
  double top1 = 0;
};

Nearness Near(const Logits& full, const Logits& other) {
  const Fidelity fidelity = Compare(full, other);
  const auto same = std::count(fidelity.same_top.begin(), fidelity.same_top.end(), true);
  return {Mean(fidelity.kl), static_cast<double>(same) / static_cast<double>(full.size())};
}

// Mean and a 95 % interval from 2,000 resamples of the questions.
std::string WithInterval(const std::vector<double>& values, int digits = 3) {
  std::mt19937 random(1);
  std::vector<double> means;
  for (int round = 0; round < 2000; ++round) {
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) sum += values[random() % values.size()];
    means.push_back(sum / static_cast<double>(values.size()));
  }
  std::sort(means.begin(), means.end());
  return fmt::format("{0:.{3}f} [{1:.{3}f}, {2:.{3}f}]", Mean(values), means[50], means[1949],
                     digits);
}

void PrintRow(std::string_view arm, uint32_t size, std::string_view plain,
              const std::vector<Nearness>& rows, std::string_view cost) {
  std::vector<double> kl;
  double top1 = 0;
  for (const Nearness& row : rows) {
    kl.push_back(row.kl);
    top1 += row.top1;
  }
  fmt::print("| {} | {} | {} | {} | {:.0f} % | {} |\n", arm, size, plain, WithInterval(kl),
             100 * top1 / static_cast<double>(rows.size()), cost);
  std::fflush(stdout);
}

class Study {
 public:
  Study(AppOptions options, std::vector<Fact> facts, std::vector<Question> questions,
        std::filesystem::path dir)
      : options_(std::move(options)),
        facts_(std::move(facts)),
        questions_(std::move(questions)),
        dir_(std::move(dir)) {}

  // Full prefill of every question, once for an episode size, and the same episodes in another
  // order.
  void Reference(uint32_t size) {
    const auto app = OpenApp({WindowKind::kIsolated, {}}, size);
    full_.clear();
    std::vector<Nearness> shuffled;
    std::mt19937_64 random(7);
    for (const Question& question : questions_) {
      std::vector<UsedFact> used;
      const Prompt prompt = Must(
          app->ComposePrompt(Request(question, MemoryMode::kText, 0), &used, nullptr), "compose");
      const std::vector<Token> answer = Answer(*app, question);
      full_.push_back(Must(app->engine().Score(prompt, answer, 0), "score"));
      const size_t tail = Must(app->engine().format().Tail(question.text), "tokenise").size();
      const Prompt other = ShuffleEpisodes(prompt, used, tail, random);
      shuffled.push_back(Near(full_.back(), Must(app->engine().Score(other, answer, 0), "score")));
    }
    PrintRow("*full prefill, episodes shuffled*", size, "-", shuffled, "-");
  }

  void Arm(const WindowStrategy& window, uint32_t size, const std::vector<uint32_t>& plains) {
    const auto app = OpenApp(window, size);
    const EncodeProgress encoded = Must(app->EncodePending(nullptr, {}), "encode");
    const std::string cost = fmt::format(
        "{:.2f}", static_cast<double>(encoded.computed_tokens) /
                      static_cast<double>(std::max<uint64_t>(1, encoded.stored_tokens)));
    for (const uint32_t plain : plains) {
      std::vector<Nearness> rows;
      for (size_t i = 0; i < questions_.size(); ++i) {
        const Prompt prompt = Must(
            app->ComposePrompt(Request(questions_[i], MemoryMode::kKv, plain), nullptr, nullptr),
            "compose");
        const Logits kv =
            Must(app->engine().Score(prompt, Answer(*app, questions_[i]), 0), "score");
        rows.push_back(Near(full_[i], kv));
      }
      PrintRow(window.ToString(), size, std::to_string(plain), rows, cost);
    }
  }

  // One window with and without a codec.
  void Codec(const WindowStrategy& window, KvCodec codec, const std::vector<uint32_t>& plains) {
    std::vector<std::vector<Logits>> unquantised;  // [plain][question]
    for (const KvCodec arm : {KvCodec::kNone, codec}) {
      options_.kv_codec = arm;
      const auto app = OpenApp(window, options_.episode_facts);
      const EncodeProgress encoded = Must(app->EncodePending(nullptr, {}), "encode");
      const KvShape shape = Must(app->Stats(), "stats").record_shape.value();
      fmt::print("{}: {} tokens stored, {} bytes each, {} of {} elements of keys clamped\n",
                 KvCodecName(arm), encoded.stored_tokens, shape.TokenBytes(), encoded.clamped,
                 encoded.stored_tokens * shape.KeyScales());
      for (size_t p = 0; p < plains.size(); ++p) {
        std::vector<Logits> logits;
        for (const Question& question : questions_) {
          const Prompt prompt = Must(
              app->ComposePrompt(Request(question, MemoryMode::kKv, plains[p]), nullptr, nullptr),
              "compose");
          logits.push_back(Must(app->engine().Score(prompt, Answer(*app, question), 0), "score"));
        }
        if (arm == KvCodec::kNone) {
          unquantised.push_back(std::move(logits));
          continue;
        }
        std::vector<double> kl;
        double top1 = 0;
        for (size_t i = 0; i < logits.size(); ++i) {
          const Nearness row = Near(unquantised[p][i], logits[i]);
          kl.push_back(row.kl);
          top1 += row.top1 / static_cast<double>(logits.size());
        }
        fmt::print("{}, {} plain: KL {}, same top token {:.1f} %\n", KvCodecName(arm), plains[p],
                   WithInterval(kl, 5), 100 * top1);
        std::fflush(stdout);
      }
    }
  }

 private:
  std::unique_ptr<App> OpenApp(const WindowStrategy& window, uint32_t size) {
    AppOptions options = options_;
    options.window = window;
    options.episode_facts = size;
    options.data_dir =
        (dir_ / fmt::format("{}-{}-{}", window.ToString(), size, KvCodecName(options.kv_codec)))
            .string();
    auto app = Must(App::Open(options, Need::kAnswer), "open");
    Must(app->Add(facts_), "add");
    return app;
  }

  AskRequest Request(const Question& question, MemoryMode mode, uint32_t plain) const {
    AskRequest request;
    request.scope.user = "sample";
    request.question = question.text;
    request.mode = mode;
    request.compose = options_.compose;
    request.compose.plain_last = plain;
    return request;
  }

  static std::vector<Token> Answer(App& app, const Question& question) {
    return Must(app.engine().format().Text(question.answer), "tokenise");
  }

  AppOptions options_;
  std::vector<Fact> facts_;
  std::vector<Question> questions_;
  std::filesystem::path dir_;
  std::vector<Logits> full_;
};

std::vector<std::string> Split(const std::string& words) {
  std::istringstream in(words);
  return {std::istream_iterator<std::string>(in), {}};
}

int Main(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  size_t questions = 24;
  size_t turns = SIZE_MAX;
  AppOptions options;
  options.slots = 1;
  std::vector<std::string> windows = {"isolated",  "window(5)",  "session",
                                      "anchor(8)", "anchor(20)", "neighbours(5)"};
  std::vector<std::string> sizes = {"6", "3", "1"};
  std::optional<KvCodec> codec;
  std::vector<std::string> files;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--questions" && i + 1 < args.size()) {
      questions = std::stoul(args[++i]);
    } else if (args[i] == "--turns" && i + 1 < args.size()) {
      turns = std::stoul(args[++i]);
    } else if (args[i] == "--facts" && i + 1 < args.size()) {
      options.compose.facts = static_cast<uint32_t>(std::stoul(args[++i]));
    } else if (args[i] == "--threads" && i + 1 < args.size()) {
      options.threads = std::stoi(args[++i]);
    } else if (args[i] == "--codec" && i + 1 < args.size()) {
      codec = Must(ParseKvCodec(args[++i]), "--codec");
    } else if (args[i] == "--windows" && i + 1 < args.size()) {
      windows = Split(args[++i]);
    } else if (args[i] == "--sizes" && i + 1 < args.size()) {
      sizes = Split(args[++i]);
    } else {
      files.push_back(args[i]);
    }
  }
  const char* model = std::getenv("INFERSCALE_MODEL");
  const char* embed_model = std::getenv("INFERSCALE_EMBED_MODEL");
  if (files.size() != 2 || model == nullptr || embed_model == nullptr) {
    Die("usage: quality CONVERSATION QUESTIONS, with INFERSCALE_MODEL and INFERSCALE_EMBED_MODEL "
        "set");
  }
  options.model = model;
  options.embed_model = embed_model;
  const auto dir =
      std::filesystem::temp_directory_path() / fmt::format("inferscale-quality-{}", getpid());
  Study study(options, ReadConversation(files[0], turns), ReadQuestions(files[1], questions, turns),
              dir);
  if (codec) {
    study.Codec(Must(ParseWindow("anchor(20)"), "window"), *codec, {0, 5});
    std::filesystem::remove_all(dir);
    return 0;
  }
  fmt::print(
      "| window | facts in an episode | plain | KL to full prefill [95 %] | same top token | "
      "tokens computed for one stored |\n|---|---|---|---|---|---|\n");
  for (const std::string& text : sizes) {
    const auto size = static_cast<uint32_t>(std::stoul(text));
    study.Reference(size);
    for (const std::string& window : windows) {
      study.Arm(Must(ParseWindow(window), "window"), size, {0, 3, 5});
    }
  }
  std::filesystem::remove_all(dir);
  return 0;
}

}  // namespace
}  // namespace inferscale

int main(int argc, char** argv) { return inferscale::Main(argc, argv); }
