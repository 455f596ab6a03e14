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
constexpr int64_t kMaxTopLogprobs = 20;

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
  const json::value* tools = root.Find("tools");
  if (tools != nullptr && !(tools->is_array() && tools->get_array().empty())) {
    return Fail(Code::kUnsupported, "'tools' are not supported");
  }
  return {};
}

Status ReadLogprobs(const Members& root, Sampling& sampling) {
  bool wanted = false;
  INFERSCALE_TRY(root.Bool("logprobs", wanted));
  uint32_t top = 0;
  INFERSCALE_TRY(root.Integer("top_logprobs", 0, kMaxTopLogprobs, top));
  if (!wanted && top > 0) {
    return Fail(Code::kInvalid, "'top_logprobs' needs 'logprobs' to be true");
  }
  if (wanted) sampling.logprobs = top;
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
  if (request.remember && ask.choices > 1) {
    return Fail(Code::kUnsupported, "'memory.remember' is for one answer: 'n' must be 1");
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

json::object Chunk(const AnswerHead& head, uint32_t choice, json::object delta, json::value finish,
                   json::value logprobs = nullptr) {
  json::object chunk = HeadToJson(head, kChunk);
  chunk["choices"] = json::array{{{"index", choice},
                                  {"delta", std::move(delta)},
                                  {"logprobs", std::move(logprobs)},
                                  {"finish_reason", std::move(finish)}}};
  return chunk;
}

json::object ChoiceToJson(size_t index, const Choice& choice) {
  return {{"index", index},
          {"message", {{"role", "assistant"}, {"content", choice.text}}},
          {"logprobs", LogprobsToJson(choice.logprobs)},
          {"finish_reason", FinishToJson(choice.finish)}};
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
  INFERSCALE_TRY(ReadResponseFormat(root, request.ask.sampling));
  INFERSCALE_TRY(ReadChoices(root, request.ask.choices));
  INFERSCALE_TRY(ReadLogprobs(root, request.ask.sampling));
  INFERSCALE_TRY(ReadMemory(root, request));
  return request;
}

std::string ChatAnswer(const AnswerHead& head, const Answer& answer) {
  json::object out = HeadToJson(head, "chat.completion");
  json::array& choices = out["choices"].emplace_array();
  choices.push_back(ChoiceToJson(0, answer));
  for (const Choice& other : answer.others) choices.push_back(ChoiceToJson(choices.size(), other));
  out["usage"] = UsageToJson(answer.stats);
  out["inferscale"] = Memory(answer);
  return json::serialize(out);
}

std::vector<std::string> ChatFirstChunks(const AnswerHead& head, uint32_t choices) {
  std::vector<std::string> chunks;
  for (uint32_t i = 0; i < choices; ++i) {
    chunks.push_back(
        json::serialize(Chunk(head, i, {{"role", "assistant"}, {"content", ""}}, nullptr)));
  }
  return chunks;
}

std::string ChatTextChunk(const AnswerHead& head, const AnswerPiece& piece) {
  return json::serialize(Chunk(head, piece.choice, {{"content", piece.text}}, nullptr,
                               LogprobsToJson(piece.logprobs)));
}

std::vector<std::string> ChatLastChunks(const AnswerHead& head, const Answer& answer) {
  std::vector<json::object> chunks = {Chunk(head, 0, {}, FinishToJson(answer.finish))};
  for (const Choice& other : answer.others) {
    const auto index = static_cast<uint32_t>(chunks.size());
    chunks.push_back(Chunk(head, index, {}, FinishToJson(other.finish)));
  }
  chunks.back()["inferscale"] = Memory(answer);
  std::vector<std::string> texts;
  texts.reserve(chunks.size());
  for (const json::object& chunk : chunks) texts.push_back(json::serialize(chunk));
  return texts;
}

std::string ChatUsageChunk(const AnswerHead& head, const Answer& answer) {
  return UsagePart(head, kChunk, answer.stats);
}

}  // namespace inferscale
