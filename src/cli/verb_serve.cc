#include <fmt/format.h>

#include "base/clock.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "server/gateway.h"
#include "server/http_server.h"

namespace inferscale {
namespace {

struct Args {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
};

Result<int> Run(const Args& args, const Options& options) {
  if (!IsLoopback(args.host)) {
    return Fail(Code::kInvalid,
                "--host {} is no loopback address: everybody there could read every user's facts. "
                "Put a proxy that asks for credentials in front",
                args.host);
  }
  INFERSCALE_ASSIGN(const auto app, OpenApplication(options.app, Need::kAnswer));
  AskRequest defaults;
  defaults.scope.tenant = options.scope.tenant;
  defaults.compose = options.app.compose;
  const SystemClock clock;
  Gateway gateway(*app, clock, defaults);
  INFERSCALE_ASSIGN(const auto server,
                    HttpServer::Listen({.host = args.host, .port = args.port},
                                       [&](const HttpRequest& request, HttpResponder& responder) {
                                         gateway.Handle(request, responder);
                                       }));
  const std::string url = fmt::format(
      "http://{}:{}", args.host.find(':') == std::string::npos ? args.host : "[" + args.host + "]",
      server->port());
  const ModelInfo& model = app->engine().info();
  if (options.json()) {
    PrintJson({{"url", url}, {"model", gateway.model()}, {"injection", model.injection}});
  } else {
    Print(fmt::format("Serving {} on {}/v1 ({}). Ctrl-C ends it.\n", gateway.model(), url,
                      model.injection ? "facts are injected" : "facts are prefilled"));
  }
  FlushOutput();
  app->StartBackgroundEncoding();
  const InterruptStop interrupt;
  server->Run(interrupt.token());
  return kExitOk;
}

}  // namespace

Verb ServeVerb(CLI::App& root) {
  auto args = std::make_shared<Args>();
  CLI::App* command =
      AddCommand(root, "serve", "Answer over HTTP, as OpenAI's API does, from memory",
                 {"inferscale serve", "inferscale serve --port 0 -o json",
                  "inferscale serve --url http://127.0.0.1:8000"});
  command->add_option("--host", args->host, "Address to listen on, of this machine only")
      ->type_name("IP")
      ->capture_default_str();
  command->add_option("--port", args->port, "Port to listen on; 0: any free one")
      ->type_name("N")
      ->capture_default_str();
  return {command, [args](const Options& options) { return Run(*args, options); }};
}

}  // namespace inferscale
