#include "server/completion_api.h"

#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <memory>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "engine/choices.h"
#include "server/errors.h"
#include "server/event_stream.h"
#include "server/json_members.h"
#include "server/model_id.h"
#include "server/openai_json.h"

namespace inferscale {
namespace {

namespace json = boost::json;

constexpr int64_t kMaxLogprobs = 5;
constexpr uint64_t kFirstSession = uint64_t{1} << 61;  // beyond those of the application

constexpr RouteSchemas kSchemas = {.body =
                                       R"({"type": "object", "required": ["prompt"], "properties": {
      "model": {"type": "string"}, "prompt": {"type": "string", "minLength": 1},
      "stream": {"type": "boolean"}, "max_tokens": {"type": "integer", "minimum": 1},
      "n": {"type": "integer", "minimum": 1, "maximum": 8},
      "logprobs": {"type": "integer", "minimum": 0, "maximum": 5},
      "temperature": {"type": "number", "minimum": 0, "maximum": 2},
      "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
      "seed": {"type": "integer", "minimum": 0},
      "stop": {"type": ["string", "array"], "items": {"type": "string"}, "maxItems": 16}}})"};

// What would change the answer's meaning if it were not heeded.
Status RefuseUnsupported(const Members& root) {
  bool echo = false;
  INFERSCALE_TRY(root.Bool("echo", echo));
  std::string suffix;
  INFERSCALE_TRY(root.Text("suffix", suffix));
  if (echo) return Fail(Code::kUnsupported, "'echo' is not supported");
  if (!suffix.empty()) return Fail(Code::kUnsupported, "'suffix' is not supported");
  if (root.Find("memory") != nullptr) {
    return Fail(Code::kUnsupported, "'memory' works with /v1/chat/completions only");
  }
  return {};
}

Status ReadNumbers(const Members& root, CompletionRequest& request) {
  INFERSCALE_TRY(ReadSampling(root, request.sampling));
  INFERSCALE_TRY(ReadResponseFormat(root, request.sampling));
  INFERSCALE_TRY(ReadChoices(root, request.choices));
  uint32_t best_of = request.choices;
  INFERSCALE_TRY(root.Integer("best_of", 1, 1 << 10, best_of));
  if (best_of != request.choices) {
    return Fail(Code::kUnsupported, "'best_of' must be as 'n': {}", request.choices);
  }
  if (root.Find("logprobs") != nullptr) {
    INFERSCALE_TRY(root.Integer("logprobs", 0, kMaxLogprobs, request.sampling.logprobs.emplace()));
  }
  return {};
}

Status ReadPrompt(const Members& root, std::string& prompt) {
  const json::value* value = root.Find("prompt");
  if (value != nullptr && value->is_array() && value->get_array().size() == 1) {
    value = &value->get_array().front();
  }
  if (value != nullptr && (value->is_array() || value->is_number())) {
    return Fail(Code::kUnsupported, "'prompt' must be one text: no list, no ids of tokens");
  }
  if (value == nullptr || !value->is_string() || value->get_string().empty()) {
    return root.Wrong("prompt", "a text that is not empty");
  }
  prompt.assign(value->get_string().data(), value->get_string().size());
  return {};
}

constexpr std::string_view kObject = "text_completion";

// A choice's logprobs as completions have them: lists side by side. Null for none.
class LogprobLists {
 public:
  json::value Next(std::span<const PlaceLogprobs> places) {
    if (places.empty()) return nullptr;
    json::array tokens, logprobs, tops, offsets;
    for (const PlaceLogprobs& place : places) {
      const std::string& text = place.chosen.text;
      tokens.emplace_back(TokenName(text));
      logprobs.emplace_back(LogprobForJson(place.chosen.logprob));
      json::object top;
      for (const TokenLogprob& one : place.top) {
        top[TokenName(one.text)] = LogprobForJson(one.logprob);
      }
      top[TokenName(text)] = LogprobForJson(place.chosen.logprob);
      tops.push_back(std::move(top));
      offsets.emplace_back(offset_);
      offset_ += static_cast<size_t>(
          std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
    }
    return {{"tokens", std::move(tokens)},
            {"token_logprobs", std::move(logprobs)},
            {"top_logprobs", std::move(tops)},
            {"text_offset", std::move(offsets)}};
  }

 private:
  size_t offset_ = 0;  // of the next token in the choice's text, in characters
};

json::object ChoiceToJson(size_t index, std::string_view text, json::value logprobs,
                          json::value finish) {
  return {{"index", index},
          {"text", text},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", std::move(finish)}};
}

std::string Part(const AnswerHead& head, json::object choice) {
  json::object part = HeadToJson(head, kObject);
  part["choices"] = json::array{std::move(choice)};
  return json::serialize(part);
}

std::string Whole(const AnswerHead& head, const Choices& all) {
  json::object whole = HeadToJson(head, kObject);
  json::array& choices = whole["choices"].emplace_array();
  for (const Choice& choice : all.choices) {
    choices.push_back(ChoiceToJson(choices.size(), choice.text,
                                   LogprobLists().Next(choice.logprobs),
                                   FinishToJson(choice.finish)));
  }
  whole["usage"] = UsageToJson(all.stats);
  return json::serialize(whole);
}

void EndStream(const AnswerHead& head, const Choices& all, bool include_usage,
               EventStream& stream) {
  for (size_t i = 0; i < all.choices.size(); ++i) {
    json::value finish = FinishToJson(all.choices[i].finish);
    if (!stream.Send(Part(head, ChoiceToJson(i, "", nullptr, std::move(finish))))) return;
  }
  if (include_usage) stream.Send(UsagePart(head, kObject, all.stats));
  stream.End();
}

class Completions {
 public:
  Completions(Engine& engine, const Clock& clock, const Sampling& defaults)
      : engine_(engine), clock_(clock), defaults_(defaults), model_(ModelId(engine.info())) {}

  void Answer(const Call& call, HttpResponder& responder) {
    const auto request = ParseCompletionRequest(call.request.body, defaults_);
    if (!request) return responder.Send(ErrorAnswer(request.error()));
    if (const Status known = CheckModel(request->model, model_); !known) {
      return responder.Send(ErrorAnswer(known.error()));
    }
    const AnswerHead head{NewAnswerId("cmpl"), model_, clock_.NowMs() / 1000};
    EventStream stream(responder);
    std::vector<LogprobLists> logprobs(request->choices);
    const auto all = Generate(*request, call, responder.gone(), [&](const AnswerPiece& piece) {
      if (!request->stream) return true;
      json::value lists = logprobs[piece.choice].Next(piece.logprobs);
      return stream.Send(
          Part(head, ChoiceToJson(piece.choice, piece.text, std::move(lists), nullptr)));
    });
    if (!all) return stream.Fail(all.error());
    if (all->choices.front().finish == FinishReason::kCancelled) return;  // nobody listens
    if (!request->stream) return responder.Send(200, Whole(head, *all));
    EndStream(head, *all, request->include_usage, stream);
  }

 private:
  Result<Choices> Generate(const CompletionRequest& request, const Call& call, std::stop_token gone,
                           const OnPiece& on_piece) {
    INFERSCALE_ASSIGN(std::vector<Token> tokens, engine_.format().Plain(request.prompt));
    const bool several = DistinctChoices(request.sampling, request.choices) > 1;
    const uint64_t session = several ? next_session_++ : 0;
    auto all = GenerateChoices(engine_,
                               {.prompt = {std::move(tokens), {}},
                                .sampling = request.sampling,
                                .session = session,
                                .tenant = call.caller.tenant,
                                .stop = std::move(gone),
                                .traceparent = call.request.traceparent},
                               request.choices, on_piece);
    if (several) engine_.EndSession(session);
    return all;
  }

  Engine& engine_;
  const Clock& clock_;
  const Sampling defaults_;
  const std::string model_;
  std::atomic<uint64_t> next_session_{kFirstSession};
};

}  // namespace

Result<CompletionRequest> ParseCompletionRequest(std::string_view body, const Sampling& defaults) {
  INFERSCALE_ASSIGN(const json::object parsed, ParseBody(body));
  const Members root(parsed, "");
  CompletionRequest request;
  request.sampling = defaults;
  INFERSCALE_TRY(RefuseUnsupported(root));
  INFERSCALE_TRY(ReadPrompt(root, request.prompt));
  INFERSCALE_TRY(root.Text("model", request.model));
  INFERSCALE_TRY(ReadStreaming(root, request.stream, request.include_usage));
  INFERSCALE_TRY(ReadNumbers(root, request));
  return request;
}

Route CompletionRoute(Engine& engine, const Clock& clock, const Sampling& defaults) {
  return {"POST",
          "/v1/completions",
          Access::kRead,
          "A text that the model goes on with",
          [completions = std::make_shared<Completions>(engine, clock, defaults)](
              const Call& call, HttpResponder& responder) { completions->Answer(call, responder); },
          kSchemas};
}

}  // namespace inferscale
