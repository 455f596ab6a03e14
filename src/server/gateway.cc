#include "server/gateway.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>
#include <random>
#include <utility>

#include "server/chat_json.h"

namespace inferscale {
namespace {

namespace json = boost::json;

constexpr size_t kDialogues = 256;

// A client may name this instead of the model.
constexpr std::string_view kAnyModel = "inferscale";

unsigned StatusOf(Code code) {
  switch (code) {
    case Code::kInvalid:
    case Code::kUnsupported:
      return 400;
    case Code::kNotFound:
      return 404;
    case Code::kConflict:
      return 409;
    case Code::kExhausted:
      return 429;
    case Code::kTransient:
      return 503;
    case Code::kCancelled:
    case Code::kCorrupt:
    case Code::kInternal:
      return 500;
  }
  return 500;
}

std::string_view TypeOf(unsigned status) {
  if (status == 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

std::string ErrorBody(const Error& error) {
  return HttpErrorBody(error.message, TypeOf(StatusOf(error.code)));
}
void SendError(const Error& error, HttpResponder& responder) {
  responder.Send(StatusOf(error.code), ErrorBody(error));
}

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
    responder_.SendEvent(ErrorBody(error));
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
      started_ms_(clock.NowMs()) {}

void Gateway::Handle(const HttpRequest& request, HttpResponder& responder) {
  const auto take = [&](std::string_view method) {
    if (request.method == method) return true;
    responder.Send(405, HttpErrorBody(fmt::format("{} takes {}", request.path, method),
                                      "invalid_request_error"));
    return false;
  };
  if (request.path == "/v1/chat/completions") {
    if (take("POST")) Chat(request, responder);
  } else if (request.path == "/v1/models") {
    if (take("GET")) responder.Send(200, Models());
  } else if (request.path == "/health") {
    if (take("GET")) responder.Send(200, Health());
  } else {
    responder.Send(404, HttpErrorBody("there is no such route", "invalid_request_error"));
  }
}

void Gateway::Chat(const HttpRequest& request, HttpResponder& responder) {
  // A page in a browser can't send this type to another site without asking first.
  if (!request.content_type.starts_with("application/json")) {
    responder.Send(
        415, HttpErrorBody("the content type must be application/json", "invalid_request_error"));
    return;
  }
  auto chat = ParseChatRequest(request.body, defaults_);
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

}  // namespace inferscale
