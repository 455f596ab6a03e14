// An answer in parts, as OpenAI's streams have them.
#ifndef INFERSCALE_SERVER_EVENT_STREAM_H_
#define INFERSCALE_SERVER_EVENT_STREAM_H_

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/errors.h"
#include "server/http_server.h"

namespace inferscale {

// It begins with the first part, so that what fails before it has a status of its own.
class EventStream {
 public:
  // `opening` stands before the first part.
  explicit EventStream(HttpResponder& responder, std::vector<std::string> opening = {})
      : responder_(responder), opening_(std::move(opening)) {}

  // False: nobody listens any more.
  bool Send(std::string_view part) { return Begin() && responder_.SendEvent(part); }
  void End() { Send("[DONE]"); }
  void Fail(const Error& error) {
    if (!begun_) return responder_.Send(ErrorAnswer(error));
    responder_.SendEvent(ErrorAnswer(error).body);
  }

 private:
  bool Begin() {
    if (std::exchange(begun_, true)) return true;
    return responder_.StartEvents() &&
           std::all_of(opening_.begin(), opening_.end(),
                       [this](const std::string& part) { return responder_.SendEvent(part); });
  }

  HttpResponder& responder_;
  const std::vector<std::string> opening_;
  bool begun_ = false;
};

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_EVENT_STREAM_H_
