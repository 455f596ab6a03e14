#include "server/completion_api.h"

#include <boost/json.hpp>
#include <utility>

#include "server/errors.h"
#include "server/event_stream.h"
#include "server/json_members.h"
#include "server/model_id.h"
#include "server/openai_json.h"

namespace inferscale {
namespace {

namespace json = boost::json;

constexpr RouteSchemas kSchemas = {.body =
                                       R"({"type": "object", "required": ["prompt"], "properties": {
      "model": {"type": "string"}, "prompt": {"type": "string", "minLength": 1},
      "stream": {"type": "boolean"}, "max_tokens": {"type": "integer", "minimum": 1},
      "temperature": {"type": "number", "minimum": 0, "maximum": 2},
      "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
      "seed": {"type": "integer", "minimum": 0},
      "stop": {"type": ["string", "array"], "items": {"type": "string"}, "maxItems": 16}}})"};

// What would change the answer's meaning if it were not heeded.
Status RefuseUnsupported(const Members& root) {
  for (const char* key : {"n", "best_of"}) {
    int64_t answers = 1;
    INFERSCALE_TRY(root.Integer(key, 1, 1 << 10, answers));
    if (answers != 1) return Fail(Code::kUnsupported, "'{}' must be 1", key);
  }
  bool echo = false;
  INFERSCALE_TRY(root.Bool("echo", echo));
  std::string suffix;
  INFERSCALE_TRY(root.Text("suffix", suffix));
  if (echo) return Fail(Code::kUnsupported, "'echo' is not supported");
  if (!suffix.empty()) return Fail(Code::kUnsupported, "'suffix' is not supported");
  if (root.Find("logprobs") != nullptr) {
    return Fail(Code::kUnsupported, "'logprobs' is not supported");
  }
  if (root.Find("memory") != nullptr) {
    return Fail(Code::kUnsupported, "'memory' works with /v1/chat/completions only");
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

std::string Part(const AnswerHead& head, std::string_view text, json::value finish,
                 const GenerateStats* usage) {
  json::object part = HeadToJson(head, kObject);
  part["choices"] = json::array{
      {{"index", 0}, {"text", text}, {"logprobs", nullptr}, {"finish_reason", std::move(finish)}}};
  if (usage != nullptr) part["usage"] = UsageToJson(*usage);
  return json::serialize(part);
}

class Completions {
 public:
  Completions(Engine& engine, const Clock& clock, const Sampling& defaults)
      : engine_(engine), clock_(clock), defaults_(defaults), model_(ModelId(engine.info())) {}

  void Answer(const Call& call, HttpResponder& responder) const {
    const auto request = ParseCompletionRequest(call.request.body, defaults_);
    if (!request) return responder.Send(ErrorAnswer(request.error()));
    if (const Status known = CheckModel(request->model, model_); !known) {
      return responder.Send(ErrorAnswer(known.error()));
    }
    const auto tokens = engine_.format().Plain(request->prompt);
    if (!tokens) return responder.Send(ErrorAnswer(tokens.error()));
    const auto generation = engine_.Start(
        {{*tokens, {}}, request->sampling, /*session=*/0, call.caller.tenant, responder.gone()});
    if (!generation) return responder.Send(ErrorAnswer(generation.error()));
    const AnswerHead head{NewAnswerId("cmpl"), model_, clock_.NowMs() / 1000};
    if (request->stream) {
      Stream(head, **generation, request->include_usage, responder);
    } else {
      Whole(head, **generation, responder);
    }
  }

 private:
  static void Whole(const AnswerHead& head, Generation& generation, HttpResponder& responder) {
    std::string text;
    for (;;) {
      const auto piece = generation.Next();
      if (!piece) return responder.Send(ErrorAnswer(piece.error()));
      if (!*piece) break;
      text += **piece;
    }
    if (generation.finish_reason() == FinishReason::kCancelled) return;  // nobody listens
    responder.Send(200,
                   Part(head, text, FinishToJson(generation.finish_reason()), &generation.stats()));
  }

  static void Stream(const AnswerHead& head, Generation& generation, bool include_usage,
                     HttpResponder& responder) {
    EventStream stream(responder);
    for (;;) {
      const auto piece = generation.Next();
      if (!piece) return stream.Fail(piece.error());
      if (!*piece) break;
      if (!stream.Send(Part(head, **piece, nullptr, nullptr))) return;
    }
    if (generation.finish_reason() == FinishReason::kCancelled) return;  // nobody listens
    if (!stream.Send(Part(head, "", FinishToJson(generation.finish_reason()), nullptr))) return;
    if (include_usage) stream.Send(UsagePart(head, kObject, generation.stats()));
    stream.End();
  }

  Engine& engine_;
  const Clock& clock_;
  const Sampling defaults_;
  const std::string model_;
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
  INFERSCALE_TRY(ReadSampling(root, request.sampling));
  return request;
}

Route CompletionRoute(Engine& engine, const Clock& clock, const Sampling& defaults) {
  return {"POST",
          "/v1/completions",
          Access::kRead,
          "A text that the model goes on with",
          [completions = Completions(engine, clock, defaults)](
              const Call& call, HttpResponder& responder) { completions.Answer(call, responder); },
          kSchemas};
}

}  // namespace inferscale
