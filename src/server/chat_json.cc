#include "server/chat_json.h"

#include <boost/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "server/json_members.h"

namespace inferscale {
namespace {

namespace json = boost::json;

constexpr int64_t kMaxFacts = 10000;
constexpr size_t kMaxMessages = 4096;

// ---- reading -----------------------------------------------------------------------------------

void AppendParagraph(std::string& text, std::string_view more) {
  if (!text.empty() && !more.empty()) text += "\n\n";
  text += more;
}

// System texts join the user's next turn; turns of the same role in a row are one.
Status ReadMessages(const json::array& messages, AskRequest& ask) {
  std::vector<PastTurn> turns;
  bool open = false;  // the last turn has no answer yet
  for (const json::value& value : messages) {
    const json::object* message = value.if_object();
    if (message == nullptr) return Fail(Code::kInvalid, "a message must be an object");
    std::string role;
    INFERSCALE_TRY(Members(*message, "messages[].").Text("role", role));
    INFERSCALE_ASSIGN(const std::string text, ReadContent(message->if_contains("content")));
    if (role == "user" || role == "system" || role == "developer") {
      if (!open) turns.emplace_back();
      open = true;
      AppendParagraph(turns.back().user, text);
    } else if (role == "assistant") {
      if (turns.empty()) turns.emplace_back();
      open = false;
      AppendParagraph(turns.back().assistant, text);
    } else {
      return Fail(Code::kUnsupported,
                  "messages can be of the roles system, developer, user and assistant");
    }
    if (&value == &messages.back() && role != "user") {
      return Fail(Code::kInvalid, "the last message must be the user's");
    }
  }
  ask.question = std::move(turns.back().user);
  turns.pop_back();
  ask.before = std::move(turns);
  if (ask.question.empty()) return Fail(Code::kInvalid, "the last message is empty");
  return {};
}

// What would change the answer's meaning if it were not heeded.
Status RefuseUnsupported(const Members& root) {
  int64_t answers = 1;
  INFERSCALE_TRY(root.Integer("n", 1, 1 << 10, answers));
  bool logprobs = false;
  INFERSCALE_TRY(root.Bool("logprobs", logprobs));
  if (answers != 1) return Fail(Code::kUnsupported, "'n' must be 1");
  if (logprobs) return Fail(Code::kUnsupported, "'logprobs' is not supported");
  const json::value* tools = root.Find("tools");
  if (tools != nullptr && !(tools->is_array() && tools->get_array().empty())) {
    return Fail(Code::kUnsupported, "'tools' are not supported");
  }
  if (const json::value* format = root.Find("response_format")) {
    const json::object* object = format->if_object();
    const json::value* type = object == nullptr ? nullptr : object->if_contains("type");
    if (type == nullptr || *type != "text") {
      return Fail(Code::kUnsupported, "'response_format' must be text");
    }
  }
  return {};
}

Status ReadMemory(const Members& root, ChatRequest& request) {
  AskRequest& ask = request.ask;
  INFERSCALE_TRY(root.Text("user", ask.scope.user));
  if (const json::value* value = root.Find("memory")) {
    if (!value->is_object()) return root.Wrong("memory", "an object");
    const Members memory(value->get_object(), "memory.");
    INFERSCALE_TRY(memory.Text("user", ask.scope.user));
    INFERSCALE_TRY(memory.Text("agent", ask.scope.agent));
    INFERSCALE_TRY(memory.Text("run", ask.scope.run));
    INFERSCALE_TRY(memory.Integer("k", 0, kMaxFacts, ask.compose.facts));
    INFERSCALE_TRY(memory.Bool("remember", request.remember));
    std::string mode(MemoryModeName(ask.mode));
    INFERSCALE_TRY(memory.Text("mode", mode));
    const auto parsed = ParseMemoryMode(mode);
    if (!parsed) return memory.Wrong("mode", "auto, kv, text or none");
    ask.mode = *parsed;
    if (const json::value* filter = memory.Find("filter")) {
      INFERSCALE_ASSIGN(request.filter, Filter::Parse(json::serialize(*filter)));
    }
    if (ask.scope.user.empty() && (request.remember || memory.Find("mode") != nullptr)) {
      return Fail(Code::kInvalid, "memory needs a user: 'memory.user' or 'user'");
    }
  }
  // Nobody's facts: an ordinary answer.
  if (ask.scope.user.empty()) ask.mode = MemoryMode::kNone;
  return {};
}

// ---- writing -----------------------------------------------------------------------------------

json::object Memory(const Answer& answer) {
  json::array facts;
  for (const UsedFact& used : answer.facts) {
    facts.push_back({{"id", used.fact.id},
                     {"text", used.fact.text},
                     {"score", used.score},
                     {"tokens", used.tokens},
                     {"injected", used.injected},
                     {"tier", used.injected ? json::value(TierName(used.tier)) : nullptr}});
  }
  const AskTimes& times = answer.times;
  return {{"mode", MemoryModeName(answer.mode)},
          {"facts", std::move(facts)},
          {"injected_tokens", answer.stats.injected_tokens},
          {"injected_is_planned", answer.stats.injected_is_planned},
          {"prefilled_tokens", answer.stats.prefilled_tokens},
          {"times",
           {{"embed_ms", times.embed_ms},
            {"search_ms", times.search_ms},
            {"compose_ms", times.compose_ms},
            {"load_ms", times.load_ms},
            {"inject_ms", times.inject_ms},
            {"prefill_ms", times.prefill_ms},
            {"first_token_ms", times.first_token_ms},
            {"total_ms", times.total_ms}}}};
}

constexpr std::string_view kChunk = "chat.completion.chunk";

json::object Chunk(const AnswerHead& head, json::object delta, json::value finish) {
  json::object chunk = HeadToJson(head, kChunk);
  chunk["choices"] = json::array{
      {{"index", 0}, {"delta", std::move(delta)}, {"finish_reason", std::move(finish)}}};
  return chunk;
}

}  // namespace

Result<ChatRequest> ParseChatRequest(std::string_view body, const AskRequest& defaults) {
  INFERSCALE_ASSIGN(const json::object parsed, ParseBody(body));
  const Members root(parsed, "");
  const json::value* messages = root.Find("messages");
  if (messages == nullptr || !messages->is_array() || messages->get_array().empty() ||
      messages->get_array().size() > kMaxMessages) {
    return root.Wrong("messages", fmt::format("an array of 1 to {} messages", kMaxMessages));
  }
  ChatRequest request;
  request.ask = defaults;
  INFERSCALE_TRY(RefuseUnsupported(root));
  INFERSCALE_TRY(ReadMessages(messages->get_array(), request.ask));
  INFERSCALE_TRY(root.Text("model", request.model));
  INFERSCALE_TRY(ReadStreaming(root, request.stream, request.include_usage));
  INFERSCALE_TRY(ReadSampling(root, request.ask.sampling));
  INFERSCALE_TRY(ReadMemory(root, request));
  return request;
}

std::string ChatAnswer(const AnswerHead& head, const Answer& answer) {
  json::object out = HeadToJson(head, "chat.completion");
  out["choices"] = json::array{{{"index", 0},
                                {"message", {{"role", "assistant"}, {"content", answer.text}}},
                                {"logprobs", nullptr},
                                {"finish_reason", FinishToJson(answer.finish)}}};
  out["usage"] = UsageToJson(answer.stats);
  out["inferscale"] = Memory(answer);
  return json::serialize(out);
}

std::string ChatFirstChunk(const AnswerHead& head) {
  return json::serialize(Chunk(head, {{"role", "assistant"}, {"content", ""}}, nullptr));
}

std::string ChatTextChunk(const AnswerHead& head, std::string_view text) {
  return json::serialize(Chunk(head, {{"content", text}}, nullptr));
}

std::string ChatLastChunk(const AnswerHead& head, const Answer& answer) {
  json::object chunk = Chunk(head, {}, FinishToJson(answer.finish));
  chunk["inferscale"] = Memory(answer);
  return json::serialize(chunk);
}

std::string ChatUsageChunk(const AnswerHead& head, const Answer& answer) {
  return UsagePart(head, kChunk, answer.stats);
}

}  // namespace inferscale
