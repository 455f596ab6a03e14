// The gateway's routes: what HTTP asks of the application.
#ifndef INFERSCALE_SERVER_GATEWAY_H_
#define INFERSCALE_SERVER_GATEWAY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "app/app.h"
#include "app/dialogues.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/add_queue.h"
#include "server/gatekeeper.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "server/request_log.h"
#include "server/router.h"

namespace inferscale {

// Thread-safe.
class Gateway {
 public:
  // All must outlive it; `app` with answers. `defaults` says what a request does not. Without a
  // gatekeeper nobody is asked for a key, and all facts are of the tenant in `defaults`.
  // Of the last `audit` answers app.audit() keeps what was put into them.
  Gateway(App& app, const Clock& clock, AskRequest defaults, Gatekeeper* gatekeeper = nullptr,
          uint64_t audit = 0);

  void Handle(const HttpRequest& request, HttpResponder& responder);

  // For requests that come from now on; all but the tenant.
  void SetDefaults(AskRequest defaults) EXCLUDES(defaults_mutex_);

  const std::string& model() const { return model_; }  // as clients name it
  const std::vector<Route>& routes() const { return router_.routes(); }

 private:
  AskRequest Defaults() const EXCLUDES(defaults_mutex_);
  std::vector<Route> MakeRoutes();
  // Fills what a record says of the route and the caller. The route, if there is one.
  const Route* Answer(const HttpRequest& request, HttpResponder& responder, RequestRecord& record);
  static void Dispatch(const Route& route, const Call& call, HttpResponder& responder);
  void Chat(const Call& call, HttpResponder& responder);
  void Audit(const std::string& answer_id, const std::string& request_id, const AskRequest& request,
             const AnswerRecord& put_in);
  std::string Models() const;
  std::string Health() const;
  // What the quality gate measured for what is served; null if nothing yet.
  HttpAnswer Ready();
  HttpAnswer Numbers();

  App& app_;
  Dialogues dialogues_;
  const Clock& clock_;
  mutable Mutex defaults_mutex_;
  AskRequest defaults_ GUARDED_BY(defaults_mutex_);
  const std::string tenant_;
  Gatekeeper* const gatekeeper_;
  const uint64_t audit_;
  const std::string model_;
  const int64_t started_ms_;
  Metrics metrics_;
  RequestLog log_;
  AddQueue add_queue_;
  const Router router_;
};

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_GATEWAY_H_
