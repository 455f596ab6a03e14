// Takes a route's answer without a socket.
#ifndef INFERSCALE_TESTS_SERVER_RECORDER_H_
#define INFERSCALE_TESTS_SERVER_RECORDER_H_

#include <string_view>

#include "server/http_server.h"

namespace inferscale {

class Recorder final : public HttpResponder {
 public:
  using HttpResponder::Send;
  void Send(const HttpAnswer& answer) override { answer_ = answer; }
  bool StartEvents() override { return true; }
  bool SendEvent(std::string_view) override { return true; }
  std::stop_token gone() const override { return {}; }
  HttpAnswer answer_;
};

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_SERVER_RECORDER_H_
