#include "server/gateway.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>
#include <random>
#include <utility>
#include <variant>

#include "server/chat_json.h"
#include "server/errors.h"

namespace inferscale {
namespace {

namespace json = boost::json;

constexpr size_t kDialogues = 256;

// A client may name this instead of the model.
constexpr std::string_view kAnyModel = "inferscale";

void SendError(const Error& error, HttpResponder& responder) { responder.Send(ErrorAnswer(error)); }

std::string NewId() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("chatcmpl-{:016x}{:016x}", random(), random());
}

// Names of GGUF files have spaces, which no client expects in a model's id.
std::string ModelId(const ModelInfo& info) {
  std::string id = info.name.empty() ? info.architecture : info.name;
  std::replace_if(
      id.begin(), id.end(), [](unsigned char c) { return std::isspace(c) != 0; }, '-');
  return id;
}

// Sends an answer's pieces as they come. The stream begins with the first, so that what fails
// before it has a status of its own.
class ChatStream {
 public:
  ChatStream(const ChatHead& head, HttpResponder& responder) : head_(head), responder_(responder) {}

  bool Text(std::string_view text) {
    return !responder_.Gone() && Begin() && responder_.SendEvent(ChatTextChunk(head_, text));
  }
  void End(const Answer& answer, const ChatRequest& request) {
    if (!Begin()) return;
    responder_.SendEvent(ChatLastChunk(head_, answer, request.ask.mode));
    if (request.include_usage) responder_.SendEvent(ChatUsageChunk(head_, answer));
    responder_.SendEvent("[DONE]");
  }
  void Failed(const Error& error) {
    if (!begun_) return SendError(error, responder_);
    responder_.SendEvent(ErrorAnswer(error).body);
  }

 private:
  bool Begin() {
    if (std::exchange(begun_, true)) return true;
    return responder_.StartEvents() && responder_.SendEvent(ChatFirstChunk(head_));
  }

  const ChatHead& head_;
  HttpResponder& responder_;
  bool begun_ = false;
};

}  // namespace

Gateway::Gateway(App& app, const Clock& clock, AskRequest defaults)
    : app_(app),
      // A process of its own holds as many conversations as it has slots, a server its whole cache.
      dialogues_(app, app.engine().info().stores_kv ? kDialogues : app.options().slots),
      clock_(clock),
      defaults_(std::move(defaults)),
      model_(ModelId(app.engine().info())),
      started_ms_(clock.NowMs()),
      router_(MakeRoutes()) {}

std::vector<Route> Gateway::MakeRoutes() {
  const auto answers = [](std::string (Gateway::*body)() const, const Gateway* gateway) {
    return [=](const Call&, HttpResponder& responder) { responder.Send(200, (gateway->*body)()); };
  };
  return {
      {"POST", "/v1/chat/completions", Access::kRead, "An answer from memory, whole or streamed",
       [this](const Call& call, HttpResponder& responder) { Chat(call, responder); }},
      {"GET", "/v1/models", Access::kRead, "The one model", answers(&Gateway::Models, this)},
      {"GET", "/health", Access::kOpen, "The model, and whether KV is injected",
       answers(&Gateway::Health, this)},
      {"GET", "/health/live", Access::kOpen, "200 while the process answers",
       [](const Call&, HttpResponder& responder) { responder.Send(200, R"({"status":"ok"})"); }},
      {"GET", "/health/ready", Access::kOpen, "200 while facts can be read, else 503",
       [this](const Call&, HttpResponder& responder) { responder.Send(Ready()); }},
  };
}

void Gateway::Handle(const HttpRequest& request, HttpResponder& responder) {
  auto found = router_.Find(request.method, request.path);
  if (auto* match = std::get_if<RouteMatch>(&found)) {
    auto query = QueryParams::Parse(request.query);
    if (!query) return SendError(query.error(), responder);
    const Caller caller{defaults_.scope.tenant, Access::kWrite, {}};
    return Dispatch(*match->route, {request, caller, std::move(match->params), *std::move(query)},
                    responder);
  }
  if (const auto* wrong = std::get_if<WrongMethod>(&found)) {
    HttpAnswer answer = ErrorAnswer(405, fmt::format("this route takes {}", wrong->allowed));
    answer.headers.emplace_back("Allow", wrong->allowed);
    return responder.Send(answer);
  }
  responder.Send(ErrorAnswer(404, "there is no such route"));
}

void Gateway::Dispatch(const Route& route, Call call, HttpResponder& responder) {
  // A page in a browser can't send this type to another site without asking first.
  const bool has_body = route.method == "POST" || route.method == "PUT";
  if (has_body && !call.request.content_type.starts_with("application/json")) {
    return responder.Send(ErrorAnswer(415, "the content type must be application/json"));
  }
  route.handler(call, responder);
}

void Gateway::Chat(const Call& call, HttpResponder& responder) {
  AskRequest defaults = defaults_;
  defaults.scope.tenant = call.caller.tenant;
  auto chat = ParseChatRequest(call.request.body, defaults);
  if (!chat) return SendError(chat.error(), responder);
  if (!chat->model.empty() && chat->model != model_ && chat->model != kAnyModel) {
    return SendError(
        {Code::kNotFound, fmt::format("there is no model of this name; there is {}", model_)},
        responder);
  }
  chat->ask.filter = &chat->filter;
  const ChatHead head{NewId(), model_, clock_.NowMs() / 1000};
  ChatStream stream(head, responder);
  const auto answer = dialogues_.Ask(chat->ask, [&](std::string_view text) {
    return chat->stream ? stream.Text(text) : !responder.Gone();
  });
  if (!answer) return stream.Failed(answer.error());
  if (answer->finish == FinishReason::kCancelled) return;  // nobody listens
  if (chat->remember) {
    const auto facts = TurnFacts(chat->ask.scope, chat->ask.question, answer->text, clock_.NowMs());
    if (const auto added = app_.Add(facts); !added) {
      spdlog::warn("a turn was not remembered: {}", added.error().message);
    }
  }
  if (chat->stream) return stream.End(*answer, *chat);
  responder.Send(200, ChatAnswer(head, *answer, chat->ask.mode));
}

std::string Gateway::Models() const {
  return json::serialize(json::object{
      {"object", "list"},
      {"data", json::array{{{"id", model_},
                            {"object", "model"},
                            {"created", started_ms_ / 1000},
                            {"owned_by", "inferscale"},
                            {"max_model_len", app_.engine().info().context_tokens}}}}});
}

std::string Gateway::Health() const {
  const ModelInfo& info = app_.engine().info();
  return json::serialize(json::object{{"status", "ok"},
                                      {"model", model_},
                                      {"engine", info.engine_version},
                                      {"injection", info.injection},
                                      {"self_test", info.self_test.summary}});
}

HttpAnswer Gateway::Ready() {
  const auto read = app_.facts().Generation(defaults_.scope.tenant, {});
  if (!read) return ErrorAnswer(503, "facts can't be read");
  return {.status = 200, .body = R"({"status":"ok"})"};
}

}  // namespace inferscale
