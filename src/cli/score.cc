#include "cli/score.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <optional>
#include <utility>

#include "app/models.h"
#include "base/clock.h"
#include "cli/output.h"
#include "engine/read_answer.h"

namespace inferscale {
namespace {

namespace json = boost::json;

constexpr uint64_t kWholeSession = 1;
// Room behind the whole conversation: the same for all questions, so that they share its tokens.
constexpr size_t kTailRoom = 512;
constexpr size_t kMostArms = 256;
constexpr size_t kMostTexts = 1024;
constexpr int64_t kMost = 1 << 20;

constexpr std::array<std::pair<std::string_view, ScoreMemory>, 6> kMemories = {{
    {"kv", ScoreMemory::kKv},
    {"text", ScoreMemory::kText},
    {"none", ScoreMemory::kNone},
    {"shuffled", ScoreMemory::kShuffled},
    {"all", ScoreMemory::kAll},
    {"given", ScoreMemory::kGiven},
}};

// ---- reading a request -------------------------------------------------------------------------

Status ReadText(const json::object& object, std::string_view key, std::string& out) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr) return {};
  if (!value->is_string()) return Fail(Code::kInvalid, "'{}' must be text", key);
  out = std::string_view(value->get_string());
  return {};
}

template <typename T>
Status ReadCount(const json::object& object, std::string_view key, int64_t least, T& out) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr) return {};
  if (!value->is_int64() || value->get_int64() < least || value->get_int64() > kMost) {
    return Fail(Code::kInvalid, "'{}' must be a whole number from {} to {}", key, least, kMost);
  }
  out = static_cast<T>(value->get_int64());
  return {};
}

Result<std::vector<std::string>> ReadTexts(const json::value& value, std::string_view key) {
  const json::array* list = value.if_array();
  if (list == nullptr || list->size() > kMostTexts) {
    return Fail(Code::kInvalid, "'{}' must be a list of at most {} texts", key, kMostTexts);
  }
  std::vector<std::string> texts;
  for (const json::value& one : *list) {
    if (!one.is_string() || one.get_string().empty()) {
      return Fail(Code::kInvalid, "'{}' must be texts", key);
    }
    texts.emplace_back(one.get_string());
  }
  return texts;
}

Result<ScoreArm> ReadArm(const json::value& value, const AppOptions& defaults) {
  const json::object* object = value.if_object();
  if (object == nullptr) return Fail(Code::kInvalid, "an arm must be an object");
  std::string memory;
  std::string window = defaults.window.ToString();
  std::string codec(KvCodecName(defaults.kv_codec));
  ScoreArm arm{.data_dir = defaults.data_dir,
               .episode = defaults.episode_facts,
               .compose = defaults.compose};
  INFERSCALE_TRY(ReadText(*object, "memory", memory));
  INFERSCALE_TRY(ReadText(*object, "data_dir", arm.data_dir));
  INFERSCALE_TRY(ReadText(*object, "window", window));
  INFERSCALE_TRY(ReadText(*object, "codec", codec));
  INFERSCALE_TRY(ReadCount(*object, "episode", 1, arm.episode));
  INFERSCALE_TRY(ReadCount(*object, "facts", 0, arm.compose.facts));
  INFERSCALE_TRY(ReadCount(*object, "plain", 0, arm.compose.plain_last));
  INFERSCALE_ASSIGN(arm.window, ParseWindow(window));
  INFERSCALE_ASSIGN(arm.codec, ParseKvCodec(codec));
  const auto* found = std::find_if(kMemories.begin(), kMemories.end(),
                                   [&](const auto& known) { return known.first == memory; });
  if (found == kMemories.end()) {
    return Fail(Code::kInvalid, "'memory' must be kv, text, none, shuffled, all or given");
  }
  arm.memory = found->second;
  if (const json::value* given = object->if_contains("given")) {
    INFERSCALE_ASSIGN(arm.given, ReadTexts(*given, "given"));
  }
  return arm;
}

double Sum(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

// The caller's own name of a fact, if it gave one, else the store's.
std::string NameOf(const Fact& fact) {
  json::error_code failed;
  const json::value metadata = json::parse(fact.metadata, failed);
  const auto* id =
      failed || !metadata.is_object() ? nullptr : metadata.get_object().if_contains("id");
  return id != nullptr && id->is_string() ? std::string(id->get_string()) : fact.id;
}

}  // namespace

Result<ScoreRequest> ParseScoreRequest(std::string_view line, const AppOptions& defaults) {
  json::error_code failed;
  const json::value value = json::parse(line, failed);
  const json::object* object = failed ? nullptr : value.if_object();
  if (object == nullptr) return Fail(Code::kInvalid, "not a JSON object");
  ScoreRequest request;
  INFERSCALE_TRY(ReadText(*object, "user", request.user));
  INFERSCALE_TRY(ReadText(*object, "question", request.question));
  INFERSCALE_TRY(ReadText(*object, "gold", request.gold));
  INFERSCALE_TRY(ReadCount(*object, "max_tokens", 1, request.max_tokens));
  INFERSCALE_TRY(ReadCount(*object, "seed", 0, request.seed));
  if (const json::value* show = object->if_contains("show")) {
    if (!show->is_bool()) return Fail(Code::kInvalid, "'show' must be true or false");
    request.show = show->get_bool();
  }
  if (request.user.empty()) return Fail(Code::kInvalid, "'user' is missing");
  if (request.question.empty()) return Fail(Code::kInvalid, "'question' is missing");
  if (const json::value* options = object->if_contains("options")) {
    INFERSCALE_ASSIGN(request.options, ReadTexts(*options, "options"));
  }
  const json::value* arms = object->if_contains("arms");
  if (arms == nullptr || !arms->is_array() || arms->get_array().empty() ||
      arms->get_array().size() > kMostArms) {
    return Fail(Code::kInvalid, "'arms' must be a list of 1 to {} objects", kMostArms);
  }
  for (const json::value& arm : arms->get_array()) {
    INFERSCALE_ASSIGN(request.arms.emplace_back(), ReadArm(arm, defaults));
  }
  return request;
}

Result<std::optional<std::vector<std::string>>> ParseEmbedRequest(std::string_view line) {
  json::error_code failed;
  const json::value value = json::parse(line, failed);
  const json::object* object = failed ? nullptr : value.if_object();
  const json::value* texts = object == nullptr ? nullptr : object->if_contains("embed");
  if (texts == nullptr) return std::nullopt;
  return ReadTexts(*texts, "embed");
}

// ---- Scorer ------------------------------------------------------------------------------------

struct Scorer::Composed {
  Prompt prompt;
  std::vector<UsedFact> facts;
};

struct Scorer::Measured {
  std::string answer;
  FinishReason finish = FinishReason::kStop;
  GenerateStats stats;
  Logits gold;
  std::vector<double> gold_nll;  // token by token
  json::array options;           // {"nll", "tokens"}
};

Result<std::unique_ptr<Scorer>> Scorer::Open(const AppOptions& options) {
  INFERSCALE_ASSIGN(Models models, LoadModels(options, Need::kAnswer));
  return std::unique_ptr<Scorer>(new Scorer(options, SharedModels(std::move(models))));
}

Result<App*> Scorer::AppFor(const ScoreArm& arm) {
  const std::string name = fmt::format("{} {} {} {}", arm.window.ToString(), arm.episode,
                                       KvCodecName(arm.codec), arm.data_dir);
  std::unique_ptr<App>& app = apps_[name];
  if (app == nullptr) {
    AppOptions options = options_;
    options.data_dir = arm.data_dir;
    options.window = arm.window;
    options.episode_facts = arm.episode;
    options.kv_codec = arm.codec;
    INFERSCALE_ASSIGN(app, OpenApp(std::move(options), models_.Share()));
  }
  return app.get();
}

Result<Scorer::Composed> Scorer::Compose(const ScoreRequest& request, const ScoreArm& arm,
                                         MemoryMode mode) {
  INFERSCALE_ASSIGN(App * app, AppFor(arm));
  AskRequest ask;
  ask.scope.user = request.user;
  ask.question = request.question;
  ask.mode = mode;
  ask.compose = arm.compose;
  // Room for whatever is put behind the prompt, so that all arms have the same.
  ask.sampling.max_tokens = std::max<uint32_t>(request.max_tokens, kTailRoom);
  Composed composed;
  INFERSCALE_ASSIGN(composed.prompt, app->ComposePrompt(ask, &composed.facts, nullptr));
  return composed;
}

Result<Scorer::Composed> Scorer::WholeConversation(const ScoreRequest& request,
                                                   const ScoreArm& arm) {
  INFERSCALE_ASSIGN(std::vector<Fact> facts, AllOf(arm, request.user));
  return Lines(request, std::move(facts));
}

Result<Scorer::Composed> Scorer::GivenFacts(const ScoreRequest& request, const ScoreArm& arm) {
  INFERSCALE_ASSIGN(std::vector<Fact> all, AllOf(arm, request.user));
  std::unordered_map<std::string, Fact*> by_name;
  for (Fact& fact : all) by_name.emplace(NameOf(fact), &fact);
  std::vector<Fact> facts;
  for (const std::string& name : arm.given) {
    // What says the same as an earlier fact is not kept.
    const auto found = by_name.find(name);
    if (found != by_name.end()) facts.push_back(*found->second);
  }
  return Lines(request, std::move(facts));
}

Result<std::vector<Fact>> Scorer::AllOf(const ScoreArm& arm, const std::string& user) {
  INFERSCALE_ASSIGN(App * app, AppFor(arm));
  const Scope scope{.tenant = Scope{}.tenant, .user = user, .agent = "", .run = ""};
  return app->facts().List({.scope = scope, .limit = SIZE_MAX / 2});
}

Result<Scorer::Composed> Scorer::Lines(const ScoreRequest& request, std::vector<Fact> facts) {
  const PromptFormat& format = engine().format();
  INFERSCALE_ASSIGN(std::vector<Token> header, format.Header(options_.system));
  INFERSCALE_ASSIGN(const std::vector<Token> tail, format.Tail(request.question));
  const size_t taken = header.size() + std::max(kTailRoom, tail.size() + request.max_tokens);
  const size_t context = engine().info().context_tokens;
  size_t room = context - std::min(context, taken);
  std::vector<std::vector<Token>> lines;
  Composed whole;
  for (auto fact = facts.rbegin(); fact != facts.rend(); ++fact) {
    INFERSCALE_ASSIGN(std::vector<Token> line, format.Text(RenderFact(*fact)));
    if (line.size() > room) break;
    room -= line.size();
    whole.facts.push_back({.fact = std::move(*fact), .tokens = static_cast<uint32_t>(line.size())});
    lines.push_back(std::move(line));
  }
  std::reverse(whole.facts.begin(), whole.facts.end());
  std::vector<Token>& tokens = whole.prompt.tokens;
  tokens = std::move(header);
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    tokens.insert(tokens.end(), line->begin(), line->end());
  }
  tokens.insert(tokens.end(), tail.begin(), tail.end());
  return whole;
}

Result<Scorer::Measured> Scorer::Measure(const ScoreRequest& request, const Prompt& prompt,
                                         uint64_t session) {
  Measured out;
  GenerateRequest generate{.prompt = prompt, .sampling = {}, .session = session};
  generate.sampling.max_tokens = request.max_tokens;
  INFERSCALE_ASSIGN(auto generation, engine().Start(std::move(generate)));
  INFERSCALE_ASSIGN(out.answer, ReadAnswer(*generation));
  out.finish = generation->finish_reason();
  out.stats = generation->stats();
  if (request.gold.empty()) return out;

  INFERSCALE_ASSIGN(const std::vector<Token> gold, engine().format().Text(request.gold));
  INFERSCALE_ASSIGN(out.gold, engine().Score(prompt, gold, session));
  for (size_t i = 0; i < gold.size(); ++i) {
    out.gold_nll.push_back(NegLogLikelihood(out.gold[i], gold[i]));
  }
  for (const std::string& option : request.options) {
    INFERSCALE_ASSIGN(const std::vector<Token> tokens, engine().format().Text(option));
    INFERSCALE_ASSIGN(const Logits logits, engine().Score(prompt, tokens, session));
    double nll = 0;
    for (size_t i = 0; i < tokens.size(); ++i) nll += NegLogLikelihood(logits[i], tokens[i]);
    out.options.emplace_back(json::object{{"nll", nll}, {"tokens", tokens.size()}});
  }
  return out;
}

Result<std::shared_ptr<const Scorer::Measured>> Scorer::Reference(const ScoreRequest& request,
                                                                  const Prompt& text,
                                                                  References& references) {
  auto& reference = references[HashBytes(std::as_bytes(std::span(text.tokens)))];
  if (reference == nullptr) {
    const uint64_t session = ++sessions_;
    auto measured = Measure(request, text, session);
    engine().EndSession(session);
    if (!measured) return tl::unexpected<Error>(std::move(measured).error());
    reference = std::make_shared<const Measured>(*std::move(measured));
  }
  return reference;
}

Result<json::object> Scorer::ScoreOne(const ScoreRequest& request, const ScoreArm& arm,
                                      References& references) {
  const Stopwatch watch;
  const bool kv = arm.memory == ScoreMemory::kKv;
  INFERSCALE_ASSIGN(Composed composed,
                    Compose(request, arm, kv ? MemoryMode::kKv : MemoryMode::kText));
  const Prompt text{.tokens = composed.prompt.tokens, .spans = {}};
  INFERSCALE_ASSIGN(const auto reference, Reference(request, text, references));
  if (arm.memory == ScoreMemory::kAll) {
    INFERSCALE_ASSIGN(composed, WholeConversation(request, arm));
  } else if (arm.memory == ScoreMemory::kGiven) {
    INFERSCALE_ASSIGN(composed, GivenFacts(request, arm));
  } else if (arm.memory == ScoreMemory::kNone) {
    INFERSCALE_ASSIGN(composed, Compose(request, arm, MemoryMode::kNone));
  } else if (arm.memory == ScoreMemory::kShuffled) {
    std::mt19937_64 random(request.seed);
    INFERSCALE_ASSIGN(const auto tail, engine().format().Tail(request.question));
    composed.prompt = ShuffleEpisodes(text, composed.facts, tail.size(), random);
  }
  std::shared_ptr<const Measured> measured = reference;
  if (arm.memory != ScoreMemory::kText) {
    const bool whole = arm.memory == ScoreMemory::kAll;
    const uint64_t session = whole ? kWholeSession : ++sessions_;
    auto own = Measure(request, composed.prompt, session);
    if (!whole) engine().EndSession(session);
    if (!own) return tl::unexpected<Error>(std::move(own).error());
    measured = std::make_shared<const Measured>(*std::move(own));
  }
  json::array facts;
  for (const UsedFact& used : composed.facts) facts.emplace_back(NameOf(used.fact));
  json::object out = {{"answer", measured->answer},
                      {"complete", measured->finish == FinishReason::kStop},
                      {"prompt_tokens", measured->stats.prompt_tokens},
                      {"injected_tokens", measured->stats.injected_tokens},
                      {"prefilled_tokens", measured->stats.prefilled_tokens},
                      {"facts", std::move(facts)}};
  if (request.show) {
    json::array lines;
    for (const UsedFact& used : composed.facts) lines.emplace_back(RenderFact(used.fact));
    out["lines"] = std::move(lines);
  }
  if (!request.gold.empty()) {
    const Fidelity fidelity = Compare(reference->gold, measured->gold);
    out["gold_nll"] = Sum(measured->gold_nll);
    out["gold_tokens"] = measured->gold_nll.size();
    out["kl"] = json::array(fidelity.kl.begin(), fidelity.kl.end());
    out["same_top"] = json::array(fidelity.same_top.begin(), fidelity.same_top.end());
    out["options"] = measured->options;
  }
  out["ms"] = Rounded(watch.Ms());
  return out;
}

Result<json::array> Scorer::Score(const ScoreRequest& request) {
  References references;
  json::array out;
  for (const ScoreArm& arm : request.arms) {
    INFERSCALE_ASSIGN(json::object scored, ScoreOne(request, arm, references));
    out.push_back(std::move(scored));
  }
  return out;
}

}  // namespace inferscale
