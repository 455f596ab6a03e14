#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/sampling_flags.h"
#include "cli/verbs.h"
#include "cli/verdict_view.h"
#include "server/gatekeeper.h"
#include "server/gateway.h"
#include "server/http_server.h"
#include "server/keys.h"
#include "server/tls.h"

namespace inferscale {
namespace {

struct Args {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  std::string unix_path;
  TlsFiles tls;
  AuthMode auth = AuthMode::kAuto;
  uint64_t audit = 0;
  bool heal = false;
};

// Whoever can reach the address must have a key, unless that is only this machine.
Status CheckReach(const Args& args, KeyStore& keys) {
  if (!args.unix_path.empty() || IsLoopback(args.host)) return {};
  if (args.auth == AuthMode::kOff) {
    return Fail(Code::kInvalid,
                "--auth off on --host {}, which is no loopback address: everybody there could read "
                "every user's facts",
                args.host);
  }
  INFERSCALE_ASSIGN(const bool any, keys.Any());
  if (any || args.auth == AuthMode::kOn) return {};
  return Fail(
      Code::kInvalid,
      "--host {} is no loopback address, and no key was made: everybody there could read "
      "every user's facts. Make one with inferscale keys create, say --auth on (which makes "
      "one and shows it), or put a proxy that asks for credentials in front",
      args.host);
}

HttpServerOptions ServerOptions(const Args& args) {
  HttpServerOptions options{.host = args.host, .port = args.port, .unix_path = args.unix_path};
  if (!args.tls.certificate.empty()) options.tls = args.tls;
  return options;
}

std::string UrlOf(const Args& args, uint16_t port) {
  if (!args.unix_path.empty()) return "unix:" + args.unix_path;
  return fmt::format("{}://{}:{}", args.tls.certificate.empty() ? "http" : "https",
                     args.host.find(':') == std::string::npos ? args.host : "[" + args.host + "]",
                     port);
}

struct Hello {
  std::string url;
  std::string model;
  bool keys_asked_for = false;
  std::optional<NewKey> first_key;
  std::optional<GateVerdict> verdict;
};

void SayHello(const Hello& hello, const ModelInfo& model, const Options& options) {
  if (options.json()) {
    boost::json::object out = {{"url", hello.url},
                               {"model", hello.model},
                               {"injection", model.injection},
                               {"auth", hello.keys_asked_for}};
    if (hello.first_key) out["admin_key"] = hello.first_key->key;
    if (hello.verdict) out["quality"] = VerdictToJson(*hello.verdict);
    PrintJson(out);
    return;
  }
  const bool is_unix = hello.url.starts_with("unix:");
  Print(fmt::format("Serving {} on {}{} ({}). Ctrl-C ends it.\n", hello.model, hello.url,
                    is_unix ? "" : "/v1",
                    model.injection ? "facts are injected" : "facts are prefilled"));
  std::vector<std::pair<std::string, std::string>> items = {
      {"Data", options.app.data_dir},
      {"Self-test", model.self_test.summary},
      {"Quality", DescribeVerdict(hello.verdict)},
      {"Keys", hello.keys_asked_for ? "asked for; inferscale keys list shows them"
                                    : "not asked for: only this machine can ask"}};
  if (hello.first_key) {
    items.emplace_back("Admin key", hello.first_key->key + " (not shown again)");
  }
  Print(Listing(items));
}

AskRequest Defaults(const Options& options) {
  AskRequest defaults = options.Request();
  defaults.scope.tenant = options.scope.tenant;
  defaults.mode = options.serve.mode;
  return defaults;
}

// What a running gateway does not need a new start for.
constexpr std::array<std::string_view, 6> kChangeable = {
    "--facts", "--fact-tokens", "--plain", "--auto-facts", "--mode", "--per-minute"};

// The names of options that one of the two gives otherwise than the other.
std::set<std::string> Changed(const Options& before, const Options& after) {
  std::set<std::string> names;
  for (const auto& [one, other] : {std::pair(&before, &after), std::pair(&after, &before)}) {
    for (const auto& [name, value] : one->given) {
      const auto found = other->given.find(name);
      if (found == other->given.end() || found->second != value) names.insert(name);
    }
  }
  return names;
}

// Reads again, when it is told to, what may change while a gateway runs.
class Reload {
 public:
  Reload(const Options& options, Gateway& gateway, Gatekeeper& gatekeeper, HttpServer& server,
         bool tls)
      : options_(options), gateway_(gateway), gatekeeper_(gatekeeper), server_(server), tls_(tls) {}

  bool HasFiles() const { return tls_ || !options_.config.empty(); }

  void operator()() {
    if (tls_) ReadCertificate();
    if (!options_.config.empty()) ReadSettings();
  }

 private:
  void ReadCertificate() {
    if (const Status read = server_.Reload(); !read) {
      Say(fmt::format("{}; what was read before stays in use", read.error().message));
    } else {
      Say("certificate and key were read again");
    }
  }

  void ReadSettings() {
    auto read = options_.read_again();
    if (!read) {
      Say(fmt::format("{}; the settings stay as they were", read.error().message));
      return;
    }
    gateway_.SetDefaults(Defaults(*read));
    gatekeeper_.SetPerMinute(read->serve.per_minute);
    std::vector<std::string> used;
    std::vector<std::string> later;
    for (const std::string& name : Changed(options_, *read)) {
      const bool now = std::ranges::find(kChangeable, name) != kChangeable.end();
      (now ? used : later).push_back(name);
    }
    std::string said =
        fmt::format("{} was read again; changed: {}", options_.config,
                    used.empty() ? "nothing" : fmt::format("{}", fmt::join(used, ", ")));
    if (!later.empty()) said += fmt::format("; with the next start: {}", fmt::join(later, ", "));
    Say(said);
    // What needs a new start stays as it was, and is said again the next time.
    for (const std::string& name : used) {
      const auto found = read->given.find(name);
      if (found == read->given.end()) {
        options_.given.erase(name);
      } else {
        options_.given[name] = found->second;
      }
    }
  }

  Options options_;
  Gateway& gateway_;
  Gatekeeper& gatekeeper_;
  HttpServer& server_;
  const bool tls_;
};

Result<int> Run(const Args& args, const Options& options) {
  std::error_code ignored;
  std::filesystem::create_directories(options.app.data_dir, ignored);
  const SystemClock clock;
  INFERSCALE_ASSIGN(const auto keys, KeyStore::Open(clock, options.app.data_dir + "/keys.db"));
  INFERSCALE_TRY(CheckReach(args, *keys));
  if (!args.tls.certificate.empty()) INFERSCALE_TRY(LoadTls(args.tls));  // sooner than a model
  AppOptions app_options = options.app;
  app_options.audit = args.audit > 0;
  app_options.heal = args.heal;
  INFERSCALE_ASSIGN(const auto app, OpenApplication(app_options, Need::kAnswer));
  Gatekeeper gatekeeper(*keys, clock,
                        {.mode = args.auth,
                         .tenant = options.scope.tenant,
                         .any_host = !args.unix_path.empty(),
                         .per_minute = options.serve.per_minute});
  Gateway gateway(*app, clock, Defaults(options), &gatekeeper, args.audit);
  INFERSCALE_ASSIGN(const auto server,
                    HttpServer::Listen(ServerOptions(args),
                                       [&](const HttpRequest& request, HttpResponder& responder) {
                                         gateway.Handle(request, responder);
                                       }));
  std::optional<HangupWatch> hangups;
  Reload reload(options, gateway, gatekeeper, *server, !args.tls.certificate.empty());
  if (reload.HasFiles()) hangups.emplace([&] { reload(); });
  Hello hello;
  hello.url = UrlOf(args, server->port());
  hello.model = gateway.model();
  if (args.auth == AuthMode::kOn) {
    INFERSCALE_ASSIGN(hello.first_key, keys->CreateFirst({options.scope.tenant, Access::kAdmin,
                                                          "made by the first start"}));
  }
  INFERSCALE_ASSIGN(const bool any_key, keys->Any());
  hello.keys_asked_for = any_key && args.auth != AuthMode::kOff;
  INFERSCALE_ASSIGN(hello.verdict, app->Verdict());
  SayHello(hello, app->engine().info(), options);
  FlushOutput();
  app->StartBackgroundEncoding();
  const InterruptStop interrupt;
  server->Run(interrupt.token());
  return kExitOk;
}

}  // namespace

Verb ServeVerb(CLI::App& root, Options* options) {
  auto args = std::make_shared<Args>();
  CLI::App* command =
      AddCommand(root, "serve", "Answer over HTTP, as OpenAI's and Mem0's APIs do, from memory",
                 {"inferscale serve", "inferscale serve --host 0.0.0.0 --auth on",
                  "inferscale serve --host 0.0.0.0 --tls-cert chain.pem --tls-key key.pem",
                  "inferscale serve --unix /run/user/1000/inferscale.sock",
                  "inferscale serve --url http://127.0.0.1:8000"});
  command->add_option("--host", args->host, "Address to listen on; others than loopback need a key")
      ->type_name("IP")
      ->capture_default_str();
  command->add_option("--port", args->port, "Port to listen on; 0: any free one")
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--unix", args->unix_path,
                   "Listen on a Unix domain socket instead, which only this user can open")
      ->type_name("PATH")
      ->excludes("--host")
      ->excludes("--port");
  CLI::Option* certificate =
      command
          ->add_option("--tls-cert", args->tls.certificate,
                       "Speak TLS with this certificate, in PEM form, the chain to its root behind "
                       "it; read again on SIGHUP")
          ->type_name("FILE")
          ->excludes("--unix");
  CLI::Option* key = command->add_option("--tls-key", args->tls.key, "Its private key")
                         ->type_name("FILE")
                         ->needs(certificate);
  certificate->needs(key);
  AddModeFlag(command, &options->serve.mode);
  const std::map<std::string, AuthMode> modes = {
      {"auto", AuthMode::kAuto}, {"on", AuthMode::kOn}, {"off", AuthMode::kOff}};
  command
      ->add_option("--auth", args->auth,
                   "Ask for keys: auto (once one was made), on (makes the first one and shows it), "
                   "off (on a loopback address only)")
      ->transform(CLI::CheckedTransformer(modes))
      ->type_name("WHEN")
      ->default_str("auto");
  command
      ->add_option("--per-minute", options->serve.per_minute,
                   "Requests a minute with one key that has no limit of its own; 0: any number")
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--audit", args->audit,
                   "Keep on the disk which facts went into the last N answers; 0: of none")
      ->type_name("N")
      ->capture_default_str();
  AddHealFlag(command, &args->heal);
  return {command, [args](const Options& given) { return Run(*args, given); }};
}

}  // namespace inferscale
