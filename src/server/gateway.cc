#include "server/gateway.h"

#include <spdlog/spdlog.h>

#include <boost/json.hpp>
#include <iterator>
#include <utility>
#include <variant>

#include "server/audit_api.h"
#include "server/chat_json.h"
#include "server/completion_api.h"
#include "server/embedding_api.h"
#include "server/errors.h"
#include "server/event_stream.h"
#include "server/key_api.h"
#include "server/mcp.h"
#include "server/memory_api.h"
#include "server/model_id.h"
#include "server/openapi.h"
#include "server/page.h"
#include "server/quota_api.h"
#include "server/status_api.h"

namespace inferscale {
namespace {

namespace json = boost::json;

constexpr size_t kDialogues = 256;

constexpr RouteSchemas kChatSchemas = {
    .body = R"({"type": "object", "required": ["messages"], "properties": {
      "model": {"type": "string"}, "user": {"type": "string"}, "stream": {"type": "boolean"},
      "messages": {"type": "array", "minItems": 1, "maxItems": 4096, "items": {"type": "object",
        "required": ["role", "content"], "properties": {"content": {"type": "string"},
          "role": {"enum": ["system", "developer", "user", "assistant"]}}}},
      "memory": {"type": "object", "properties": {"user": {"type": "string"},
        "agent": {"type": "string"}, "run": {"type": "string"}, "filter": {"type": "object"},
        "mode": {"enum": ["auto", "kv", "text", "none"]}, "remember": {"type": "boolean"},
        "k": {"type": "integer", "minimum": 0, "maximum": 10000}}},
      "n": {"type": "integer", "minimum": 1, "maximum": 8},
      "logprobs": {"type": "boolean"},
      "response_format": {"type": "object", "required": ["type"], "properties": {
        "type": {"enum": ["text", "json_object", "json_schema"]},
        "json_schema": {"type": "object", "required": ["schema"],
          "properties": {"schema": {"type": "object"}}}}},
      "top_logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
      "max_tokens": {"type": "integer", "minimum": 1},
      "temperature": {"type": "number", "minimum": 0, "maximum": 2},
      "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
      "seed": {"type": "integer", "minimum": 0},
      "stop": {"type": ["string", "array"], "items": {"type": "string"}, "maxItems": 16}}})"};

void SendError(const Error& error, HttpResponder& responder) { responder.Send(ErrorAnswer(error)); }

// Notes with which status a request is answered.
class Counted final : public HttpResponder {
 public:
  explicit Counted(HttpResponder& responder) : responder_(responder) {}

  unsigned status() const { return status_; }
  using HttpResponder::Send;
  void Send(const HttpAnswer& answer) override {
    status_ = answer.status;
    responder_.Send(answer);
  }
  bool StartEvents() override {
    status_ = 200;
    return responder_.StartEvents();
  }
  bool SendEvent(std::string_view data) override { return responder_.SendEvent(data); }
  std::stop_token gone() const override { return responder_.gone(); }

 private:
  HttpResponder& responder_;
  unsigned status_ = 0;  // nobody listens any more
};

}  // namespace

Gateway::Gateway(App& app, const Clock& clock, AskRequest defaults, Gatekeeper* gatekeeper,
                 uint64_t audit)
    : app_(app),
      // A process of its own holds as many conversations as it has slots, a server its whole cache.
      dialogues_(app, app.engine().info().stores_kv ? kDialogues : app.options().slots),
      clock_(clock),
      defaults_(std::move(defaults)),
      tenant_(defaults_.scope.tenant),
      gatekeeper_(gatekeeper),
      audit_(audit),
      model_(ModelId(app.engine().info())),
      started_ms_(clock.NowMs()),
      add_queue_(clock),
      router_(MakeRoutes()) {}

void Gateway::SetDefaults(AskRequest defaults) {
  defaults.scope.tenant = tenant_;
  MutexLock lock(defaults_mutex_);
  defaults_ = std::move(defaults);
}

AskRequest Gateway::Defaults() const {
  MutexLock lock(defaults_mutex_);
  return defaults_;
}

std::vector<Route> Gateway::MakeRoutes() {
  const auto answers = [](std::string (Gateway::*body)() const, const Gateway* gateway) {
    return [=](const Call&, HttpResponder& responder) { responder.Send(200, (gateway->*body)()); };
  };
  std::vector<Route> routes = {
      {"POST", "/v1/chat/completions", Access::kRead, "An answer from memory, whole or streamed",
       [this](const Call& call, HttpResponder& responder) { Chat(call, responder); }, kChatSchemas},
      {"GET", "/v1/models", Access::kRead, "The model that answers, and the one for embeddings",
       answers(&Gateway::Models, this)},
      {"GET", "/health", Access::kOpen, "The model, and whether KV is injected",
       answers(&Gateway::Health, this)},
      {"GET", "/openapi.json", Access::kOpen, "This document",
       [this](const Call&, HttpResponder& responder) {
         responder.Send(200, json::serialize(OpenApiDocument(router_.routes())));
       }},
      {"GET", "/metrics", Access::kAdmin, "Numbers for Prometheus",
       [this](const Call&, HttpResponder& responder) { responder.Send(Numbers()); }},
      {"GET", "/health/live", Access::kOpen, "200 while the process answers",
       [](const Call&, HttpResponder& responder) { responder.Send(200, R"({"status":"ok"})"); }},
      {"GET", "/health/ready", Access::kOpen, "200 while facts can be read, else 503",
       [this](const Call&, HttpResponder& responder) { responder.Send(Ready()); }},
  };
  const auto append = [&](std::vector<Route> more) {
    std::move(more.begin(), more.end(), std::back_inserter(routes));
  };
  routes.push_back(CompletionRoute(app_.engine(), clock_, Defaults().sampling));
  routes.push_back(EmbeddingRoute(app_.embedder()));
  append(QuotaRoutes(app_));
  if (app_.audit() != nullptr) routes.push_back(AuditRoute(*app_.audit()));
  append(StatusRoutes(app_, log_, model_));
  append(PageRoutes());
  append(MemoryRoutes(app_, clock_, &add_queue_));
  routes.push_back(McpRoute(MemoryRoutes(app_, clock_, &add_queue_)));
  if (gatekeeper_ != nullptr) append(KeyRoutes(gatekeeper_->keys()));
  return routes;
}

void Gateway::Handle(const HttpRequest& request, HttpResponder& responder) {
  const Stopwatch watch;
  Counted counted(responder);
  RequestRecord record;
  record.id = request.request_id;
  record.at_ms = clock_.NowMs();
  const Route* route = Answer(request, counted, record);
  record.status = counted.status();
  record.ms = watch.Ms();
  metrics_.Count(record);
  const bool quiet = route != nullptr && (route->quiet || route->access == Access::kOpen);
  if (!quiet || record.status >= 400) log_.Add(std::move(record));
}

const Route* Gateway::Answer(const HttpRequest& request, HttpResponder& responder,
                             RequestRecord& record) {
  auto found = router_.Find(request.method, request.path);
  if (auto* match = std::get_if<RouteMatch>(&found)) {
    const Route* route = match->route;
    record.method = route->method;
    record.route = route->path;
    tl::expected<Caller, HttpAnswer> caller = Caller{tenant_, Access::kWrite, {}};
    if (gatekeeper_ != nullptr) caller = gatekeeper_->Admit(request, route->access);
    if (!caller) {
      responder.Send(caller.error());
      return route;
    }
    record.tenant = caller->tenant;
    record.key_id = caller->key_id;
    auto query = QueryParams::Parse(request.query);
    if (!query) {
      SendError(query.error(), responder);
      return route;
    }
    Dispatch(*route, {request, *caller, std::move(match->params), *std::move(query), &record},
             responder);
    return route;
  }
  if (const auto* wrong = std::get_if<WrongMethod>(&found)) {
    HttpAnswer answer = ErrorAnswer(405, fmt::format("this route takes {}", wrong->allowed));
    answer.headers.emplace_back("Allow", wrong->allowed);
    responder.Send(answer);
    return nullptr;
  }
  responder.Send(ErrorAnswer(404, "there is no such route"));
  return nullptr;
}

void Gateway::Dispatch(const Route& route, const Call& call, HttpResponder& responder) {
  // A page in a browser can't send this type to another site without asking first.
  const bool has_body = route.method == "POST" || route.method == "PUT";
  if (has_body && !call.request.content_type.starts_with("application/json")) {
    return responder.Send(ErrorAnswer(415, "the content type must be application/json"));
  }
  route.handler(call, responder);
}

void Gateway::Chat(const Call& call, HttpResponder& responder) {
  AskRequest defaults = Defaults();
  defaults.scope.tenant = call.caller.tenant;
  auto chat = ParseChatRequest(call.request.body, defaults);
  if (!chat) return SendError(chat.error(), responder);
  if (const Status known = CheckModel(chat->model, model_); !known) {
    return SendError(known.error(), responder);
  }
  if (chat->remember && call.caller.access < Access::kWrite) {
    return responder.Send(ErrorAnswer(403, "'memory.remember' needs a key with access to write"));
  }
  chat->ask.filter = &chat->filter;
  chat->ask.stop = responder.gone();
  chat->ask.traceparent = call.request.traceparent;
  const AnswerHead head{NewAnswerId("chatcmpl"), model_, clock_.NowMs() / 1000};
  EventStream stream(responder, ChatFirstChunks(head, chat->ask.choices));
  const auto answer = dialogues_.Ask(chat->ask, [&](const AnswerPiece& piece) {
    return !chat->stream || stream.Send(ChatTextChunk(head, piece));
  });
  if (!answer) return stream.Fail(answer.error());
  AnswerRecord put_in = MakeAnswerRecord(*answer);
  if (audit_ > 0) Audit(head.id, call.request.request_id, chat->ask, put_in);
  if (call.record != nullptr) call.record->answer = std::move(put_in);
  if (answer->finish == FinishReason::kCancelled) return;  // nobody listens
  if (chat->remember) {
    const auto facts = TurnFacts(chat->ask.scope, chat->ask.question, answer->text, clock_.NowMs());
    if (const auto added = app_.Add(facts); !added) {
      spdlog::warn("a turn was not remembered: {}", added.error().message);
    }
  }
  if (!chat->stream) return responder.Send(200, ChatAnswer(head, *answer));
  for (const std::string& chunk : ChatLastChunks(head, *answer)) {
    if (!stream.Send(chunk)) return;
  }
  if (chat->include_usage) stream.Send(ChatUsageChunk(head, *answer));
  stream.End();
}

// An answer is not withheld for want of a line about it.
void Gateway::Audit(const std::string& answer_id, const std::string& request_id,
                    const AskRequest& request, const AnswerRecord& put_in) {
  const Status kept = app_.audit()->Add({.at_ms = clock_.NowMs(),
                                         .answer = answer_id,
                                         .request = request_id,
                                         .scope = request.scope,
                                         .mode = std::string(MemoryModeName(put_in.mode)),
                                         .injected_tokens = put_in.stats.injected_tokens,
                                         .held_tokens = put_in.stats.cached_tokens,
                                         .computed_tokens = put_in.stats.prefilled_tokens,
                                         .injected = put_in.injected,
                                         .computed = put_in.prefilled},
                                        audit_);
  if (!kept) spdlog::error("an answer is missing in the audit log: {}", kept.error().message);
}

std::string Gateway::Models() const {
  const auto model = [&](const std::string& id) {
    return json::object{{"id", id},
                        {"object", "model"},
                        {"created", started_ms_ / 1000},
                        {"owned_by", "inferscale"}};
  };
  json::object chat = model(model_);
  chat["max_model_len"] = app_.engine().info().context_tokens;
  return json::serialize(
      json::object{{"object", "list"},
                   {"data", json::array{std::move(chat), model(ModelId(app_.embedder().name()))}}});
}

std::string Gateway::Health() const {
  const ModelInfo& info = app_.engine().info();
  return json::serialize(json::object{{"status", "ok"},
                                      {"model", model_},
                                      {"engine", info.engine_version},
                                      {"injection", info.injection},
                                      {"self_test", info.self_test.summary},
                                      {"quality", QualityToJson(app_)}});
}

HttpAnswer Gateway::Numbers() {
  const auto stats = app_.Stats();
  if (!stats) return ErrorAnswer(stats.error());
  const auto tenants = app_.UseOfLimited(Metrics::kMaxTenants);
  if (!tenants) return ErrorAnswer(tenants.error());
  return {.status = 200,
          .body = metrics_.Text(*stats, *tenants),
          .content_type = "text/plain; version=0.0.4; charset=utf-8"};
}

HttpAnswer Gateway::Ready() {
  const auto read = app_.facts().Generation(tenant_, {});
  if (!read) return ErrorAnswer(503, "facts can't be read");
  return {.status = 200, .body = R"({"status":"ok"})"};
}

}  // namespace inferscale
