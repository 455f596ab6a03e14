#include "engine/vllm/servers.h"

#include <algorithm>
#include <utility>

namespace inferscale {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kFailuresInARow = 3;
constexpr std::chrono::milliseconds kFirstPause{500};
constexpr std::chrono::milliseconds kLongestPause{30'000};

}  // namespace

bool VllmServer::Usable() const {
  MutexLock lock(mutex_);
  return Clock::now() >= closed_until_;
}

bool VllmServer::checked() const {
  MutexLock lock(mutex_);
  return checked_;
}

void VllmServer::SetChecked() {
  MutexLock lock(mutex_);
  checked_ = true;
}

void VllmServer::Report(Outcome outcome) {
  MutexLock lock(mutex_);
  if (outcome == Outcome::kAnswered) {
    failures_ = 0;
    return;
  }
  if (outcome == Outcome::kGone) checked_ = false;
  if (++failures_ < kFailuresInARow) return;
  const uint32_t doublings = std::min(failures_ - kFailuresInARow, 16U);
  closed_until_ = Clock::now() + std::min(kFirstPause * (1 << doublings), kLongestPause);
}

Result<std::unique_ptr<VllmServers>> VllmServers::Make(std::span<const std::string> urls,
                                                       const HttpClientOptions& options) {
  if (urls.empty()) return Fail(Code::kInvalid, "no URL of a vLLM server was given");
  auto servers = std::make_unique<VllmServers>();
  for (const std::string& url : urls) {
    INFERSCALE_ASSIGN(HttpUrl parsed, ParseHttpUrl(url));
    // OpenAI clients are given URLs that end in /v1; some routes used here stand beside it.
    if (parsed.path.ends_with("/v1")) parsed.path.resize(parsed.path.size() - 3);
    servers->servers_.push_back(std::make_unique<VllmServer>(url, std::move(parsed), options));
  }
  return servers;
}

Result<VllmServer*> VllmServers::Pick(uint64_t session) {
  const uint64_t first = session != 0 ? session : turn_++;
  Error why{Code::kTransient, "it failed and is left alone for a while"};
  const VllmServer* last = nullptr;
  for (size_t i = 0; i < servers_.size(); ++i) {
    VllmServer& server = *servers_[(first + i) % servers_.size()];
    last = &server;
    if (!server.Usable()) continue;
    if (server.checked()) return &server;
    MutexLock lock(check_mutex_);
    if (server.checked()) return &server;
    const Status checked = check_(server);
    if (checked) {
      server.SetChecked();
      return &server;
    }
    why = checked.error();
  }
  if (!why.message.starts_with(last->url())) why = Wrap(std::move(why), last->url()).value();
  if (servers_.size() == 1) return tl::unexpected(std::move(why));
  return Wrap(std::move(why), "no vLLM server can be used");
}

Result<std::string> VllmServers::CallOne(VllmServer& server, const HttpCall& call,
                                         const std::stop_token& stop) {
  auto reply = server.client().Call(call, stop);
  using Outcome = VllmServer::Outcome;
  if (reply) {
    server.Report(reply->status < 500 ? Outcome::kAnswered : Outcome::kErred);
  } else {
    if (reply.error().code != Code::kCancelled) server.Report(Outcome::kGone);
    return Wrap(std::move(reply).error(), server.url());
  }
  if (reply->status == 200) return std::move(reply->body);
  // Its body may quote the text, so it stays out of the message.
  return Fail(reply->status >= 500   ? Code::kTransient
              : reply->status == 404 ? Code::kNotFound
                                     : Code::kInvalid,
              "{}{}: status {}", server.url(), call.path, reply->status);
}

Result<std::string> VllmServers::Call(const HttpCall& call, const std::stop_token& stop) {
  Error error;
  for (int attempt = 0; attempt < kVllmAttempts; ++attempt) {
    auto server = Pick(0);
    if (!server) return tl::unexpected(server.error());
    auto body = CallOne(**server, call, stop);
    if (body || body.error().code != Code::kTransient) return body;
    error = std::move(body).error();
  }
  return tl::unexpected(std::move(error));
}

}  // namespace inferscale
