// Several vLLM servers of one model: which is asked next, and what to do when one fails.
#ifndef INFERSCALE_ENGINE_VLLM_SERVERS_H_
#define INFERSCALE_ENGINE_VLLM_SERVERS_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/http/client.h"
#include "base/mutex.h"
#include "base/result.h"

namespace inferscale {

// One server behind a circuit breaker: after three failures in a row it is left alone for half a
// second, then twice as long after each further failure, up to 30 s. Thread-safe.
class VllmServer {
 public:
  VllmServer(std::string url, HttpUrl parsed, HttpClientOptions options)
      : url_(std::move(url)), client_(std::move(parsed), std::move(options)) {}

  enum class Outcome : uint8_t {
    kAnswered,
    kErred,  // a status of 500 and above, or what makes no sense
    kGone,   // no connection, a broken one, no answer in time; when it is back, it may be another
             // process, and has to be checked again
  };

  const std::string& url() const { return url_; }
  HttpClient& client() { return client_; }

  bool Usable() const;
  void Report(Outcome outcome);
  bool checked() const;
  void SetChecked();

 private:
  const std::string url_;
  HttpClient client_;
  mutable Mutex mutex_;
  uint32_t failures_ GUARDED_BY(mutex_) = 0;
  bool checked_ GUARDED_BY(mutex_) = false;
  std::chrono::steady_clock::time_point closed_until_ GUARDED_BY(mutex_);
};

// Thread-safe.
class VllmServers {
 public:
  // `check` makes sure that a server is what is expected; it runs before the first use and after
  // every failure.
  using Check = std::function<Status(VllmServer&)>;

  // kInvalid or kUnsupported for a URL that is none.
  static Result<std::unique_ptr<VllmServers>> Make(std::span<const std::string> urls,
                                                   const HttpClientOptions& options);
  void SetCheck(Check check) { check_ = std::move(check); }

  // Usable servers take turns; a session stays with its own while that is usable. kTransient if
  // there is none, with the last reason. What a check refuses is not used either.
  Result<VllmServer*> Pick(uint64_t session);

  // The body of the answer of status 200. Asks the next server if one fails, three times in all.
  // kInvalid for another status below 500.
  Result<std::string> Call(const HttpCall& call, const std::stop_token& stop = {});
  // The same to one server, once; reports to its breaker.
  static Result<std::string> CallOne(VllmServer& server, const HttpCall& call,
                                     const std::stop_token& stop = {});

  size_t size() const { return servers_.size(); }

 private:
  std::vector<std::unique_ptr<VllmServer>> servers_;
  Check check_;
  Mutex check_mutex_;  // one check at a time
  std::atomic<uint64_t> turn_{0};
};

constexpr int kVllmAttempts = 3;

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_VLLM_SERVERS_H_
