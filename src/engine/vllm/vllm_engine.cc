#include "engine/vllm/vllm_engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <thread>
#include <unordered_set>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/template_format.h"
#include "engine/vllm/generation.h"
#include "engine/vllm/protocol.h"
#include "engine/vllm/servers.h"
#include "engine/vllm/tokenizer.h"

namespace inferscale {
namespace {

// Of the self-test's second prompt: far enough for wrong rotations to show.
constexpr uint32_t kSelfTestTokens = 96;
constexpr int kEncodersAtATime = 4;

std::string_view TestStateName(SelfTestState state) {
  switch (state) {
    case SelfTestState::kNone:
      return "did not run";
    case SelfTestState::kPassed:
      return "passed";
    case SelfTestState::kFailed:
      return "failed";
  }
  return "did not run";
}

// What a server says of itself.
struct Greeting {
  ServedModel model;
  std::optional<ConnectorInfo> connector;
  TokenizerInfo tokenizer;
};

class VllmEngine final : public Engine {
 public:
  explicit VllmEngine(VllmEngineOptions options) : options_(std::move(options)) {}
  Status Open();

  const ModelInfo& info() const override { return info_; }
  const PromptFormat& format() const override { return *format_; }
  std::string Detokenize(std::span<const Token> tokens) const override;

  Result<std::unique_ptr<Generation>> Start(GenerateRequest request) override;
  Result<EncodeResult> Encode(const EncodeRequest& request) override;
  Result<std::vector<std::vector<float>>> Score(const Prompt&, std::span<const Token>,
                                                uint64_t) override {
    return Fail(Code::kUnsupported, "vLLM's HTTP interface gives no logits");
  }
  void EndSession(uint64_t /*session*/) override {}

 private:
  static Result<TokenizerInfo> AskTokenizer(VllmServer& server, std::string_view model);
  Result<Greeting> Greet(VllmServer& server) const;
  Result<std::string> Probe(VllmServer& server, std::string_view model,
                            std::span<const Token> prompt, std::string_view kv_params) const;
  Status TestSelf(VllmServer& server, std::string_view model) const;
  Status Check(VllmServer& server);
  void Describe(const Greeting& greeting);
  Result<uint64_t> EncodeOne(const EncodeRequest& request, const EncodeItem& item,
                             const std::stop_token& stop);

  const VllmEngineOptions options_;
  std::unique_ptr<VllmServers> servers_;
  std::optional<Greeting> first_;  // what every server has to say too
  std::unordered_set<Token> special_;
  std::unique_ptr<VllmTokenizer> tokenizer_;
  std::unique_ptr<PromptFormat> format_;
  std::vector<Token> turn_end_;
  ModelInfo info_;
};

// A token of a prompt for questions to the connector. Any will do; the first ids of a vocabulary
// are often control tokens, which some models treat in their own way.
constexpr Token kProbeToken = 100;

Result<std::string> VllmEngine::Probe(VllmServer& server, std::string_view model,
                                      std::span<const Token> prompt,
                                      std::string_view kv_params) const {
  Sampling sampling;
  sampling.max_tokens = 1;
  return VllmServers::CallOne(
      server,
      {.path = "/v1/completions",
       .body = MakeCompletion(
           {.model = model, .prompt = prompt, .sampling = sampling, .kv_params = kv_params}),
       .timeout = options_.silence});
}

Status VllmEngine::TestSelf(VllmServer& server, std::string_view model) const {
  const std::vector<Token> tokens(kSelfTestTokens + 1, kProbeToken);
  INFERSCALE_TRY(Probe(server, model, std::span(tokens).first(1), SelfTestOp(0)));
  INFERSCALE_TRY(Probe(server, model, tokens, SelfTestOp(1)));
  return {};
}

Result<Greeting> VllmEngine::Greet(VllmServer& server) const {
  Greeting greeting;
  INFERSCALE_ASSIGN(const std::string models,
                    VllmServers::CallOne(server, {.method = "GET", .path = "/v1/models"}));
  INFERSCALE_ASSIGN(greeting.model, ParseModels(models));
  const std::string& id = greeting.model.id;
  const auto ask = [&]() -> Result<ConnectorInfo> {
    INFERSCALE_ASSIGN(const std::string body,
                      Probe(server, id, std::span(&kProbeToken, 1), InfoOp()));
    return ParseInfo(body);
  };
  auto said = ask();
  // Twice: the first of its questions may come before its workers are ready.
  for (int round = 0; round < 2 && said && said->self_test == SelfTestState::kNone; ++round) {
    INFERSCALE_TRY(TestSelf(server, id));
    said = ask();
  }
  if (said) {
    greeting.connector = std::move(*said);
    if (greeting.connector->tokenizer) {
      greeting.tokenizer = *greeting.connector->tokenizer;
      return greeting;
    }
  } else if (said.error().code != Code::kNotFound) {
    return tl::unexpected(std::move(said).error());
  }
  INFERSCALE_ASSIGN(greeting.tokenizer, AskTokenizer(server, id));
  return greeting;
}

// What the connector would say.
Result<TokenizerInfo> VllmEngine::AskTokenizer(VllmServer& server, std::string_view model) {
  const auto body = VllmServers::CallOne(server, {.method = "GET", .path = "/tokenizer_info"});
  if (!body && body.error().code == Code::kNotFound) {
    return Fail(Code::kUnsupported,
                "its special tokens are not known: start vLLM with InferScale's KV connector, or "
                "with --enable-tokenizer-info-endpoint");
  }
  INFERSCALE_TRY(body);
  INFERSCALE_ASSIGN(TokenizerInfo info, ParseTokenizerInfo(*body));
  std::array<std::vector<Token>, 2> tokens;  // without and with BOS
  for (const bool bos : {false, true}) {
    INFERSCALE_ASSIGN(
        const std::string answer,
        VllmServers::CallOne(server, {.path = "/tokenize", .body = MakeTokenize(model, "a", bos)}));
    INFERSCALE_ASSIGN(tokens[bos ? 1 : 0], ParseTokens(answer));
  }
  if (tokens[1].size() > tokens[0].size()) info.bos = tokens[1].front();
  return info;
}

// A server that comes later, or again, has to be of the same model and store.
Status VllmEngine::Check(VllmServer& server) {
  INFERSCALE_ASSIGN(Greeting greeting, Greet(server));
  if (!first_) {
    first_ = std::move(greeting);
    return {};
  }
  const bool model = greeting.model.id == first_->model.id;
  const bool kv =
      !info_.injection || (greeting.connector && greeting.connector->injection &&
                           greeting.connector->fingerprint == first_->connector->fingerprint &&
                           greeting.connector->ranks == first_->connector->ranks);
  if (model && kv) return {};
  return Fail(Code::kUnsupported, "it serves {}{}, but the first server {}", greeting.model.id,
              model ? " with other KV or none" : "", first_->model.id);
}

void VllmEngine::Describe(const Greeting& greeting) {
  info_.name = greeting.model.id;
  info_.architecture = "vllm";
  info_.description =
      fmt::format("{} server{}", servers_->size(), servers_->size() == 1 ? "" : "s");
  info_.engine_version = "vLLM";
  info_.context_tokens = greeting.model.context_tokens;
  info_.stores_kv = true;
  if (!greeting.connector) {
    info_.self_test.summary = "the server runs without InferScale's KV connector";
    return;
  }
  const ConnectorInfo& said = *greeting.connector;
  info_.engine_version = fmt::format("vLLM {}, connector {}", said.vllm, said.version);
  info_.shape = said.shape;
  info_.fingerprint = said.fingerprint;
  info_.kv_dir = said.dir;
  info_.cache_block_tokens = said.block_tokens;
  info_.kv_ranks = said.ranks;
  if (said.context_tokens > 0) info_.context_tokens = said.context_tokens;
  info_.self_test.passed = said.self_test == SelfTestState::kPassed;
  info_.self_test.layer_error = said.layers;
  info_.injection = said.injection;
  info_.self_test.summary = fmt::format("{}; worst layer {:.4f}{}{}", TestStateName(said.self_test),
                                        said.worst, said.reason.empty() ? "" : "; ", said.reason);
}

Status VllmEngine::Open() {
  INFERSCALE_ASSIGN(servers_,
                    VllmServers::Make(options_.urls, {.bearer = options_.api_key,
                                                      .connect_timeout = options_.connect_timeout,
                                                      .timeout = options_.tokenize_timeout}));
  servers_->SetCheck([this](VllmServer& server) { return Check(server); });
  INFERSCALE_TRY(servers_->Pick(0));
  Describe(*first_);
  if (options_.context_tokens > 0) {
    info_.context_tokens = std::min(info_.context_tokens, options_.context_tokens);
  }
  info_.encode_tokens = info_.context_tokens - std::min(1U, info_.context_tokens);
  if (info_.context_tokens == 0) {
    return Fail(Code::kUnsupported, "{}: does not say how long its context is", info_.name);
  }
  const TokenizerInfo& tokenizer = first_->tokenizer;
  for (const auto& [text, token] : tokenizer.special) special_.insert(token);
  tokenizer_ = std::make_unique<VllmTokenizer>(
      [this](std::string_view text) -> Result<std::vector<Token>> {
        INFERSCALE_ASSIGN(
            const std::string body,
            servers_->Call({.path = "/tokenize", .body = MakeTokenize(info_.name, text)}));
        return ParseTokens(body);
      },
      tokenizer);
  INFERSCALE_ASSIGN(format_, MakePromptFormat(*tokenizer_, tokenizer.chat_template, info_.name));
  INFERSCALE_ASSIGN(const TemplateStrings strings, RecogniseTemplate(tokenizer.chat_template));
  INFERSCALE_ASSIGN(turn_end_, tokenizer_->Markup(strings.turn_end));
  if (turn_end_.size() != 1) turn_end_.clear();
  if (!info_.injection) {
    spdlog::warn("facts are prefilled, not injected: {}", info_.self_test.summary);
  }
  return {};
}

std::string VllmEngine::Detokenize(std::span<const Token> tokens) const {
  std::vector<Token> said;
  std::copy_if(tokens.begin(), tokens.end(), std::back_inserter(said),
               [&](Token token) { return !special_.contains(token); });
  if (said.empty()) return {};
  const auto body =
      servers_->Call({.path = "/detokenize", .body = MakeDetokenize(info_.name, said)});
  // It says something, whatever it is.
  return body ? ParseDetokenized(*body).value_or("\uFFFD") : "\uFFFD";
}

// ---- answers -----------------------------------------------------------------------------------
namespace {

Status CheckVllmPrompt(const Prompt& prompt, uint32_t context) {
  if (prompt.tokens.empty()) return Fail(Code::kInvalid, "the prompt is empty");
  if (prompt.tokens.size() > context) {
    return Fail(Code::kInvalid, "the prompt has {} tokens, the context {}", prompt.tokens.size(),
                context);
  }
  uint64_t end = 0;
  for (const PromptSpan& span : prompt.spans) {
    if (span.tokens == 0 || span.first < end || span.key.IsZero()) {
      return Fail(Code::kInvalid, "a span of {} tokens at {} overlaps or names no record",
                  span.tokens, span.first);
    }
    end = uint64_t{span.first} + span.tokens;
  }
  if (end >= prompt.tokens.size() && !prompt.spans.empty()) {
    return Fail(Code::kInvalid, "the spans leave no token of the prompt to be computed");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Generation>> VllmEngine::Start(GenerateRequest request) {
  INFERSCALE_TRY(CheckVllmPrompt(request.prompt, info_.context_tokens));
  if (!info_.injection) request.prompt.spans.clear();
  const std::vector<PromptSpan>& spans = request.prompt.spans;
  const std::string plan = spans.empty() ? "" : InjectOp(request.tenant, spans);
  const std::string salt = spans.empty() ? "" : PlanSalt(info_.fingerprint, request.tenant, spans);
  CompletionBody body{.model = info_.name,
                      .prompt = request.prompt.tokens,
                      .sampling = request.sampling,
                      .stop_tokens = turn_end_,
                      .kv_params = plan,
                      .cache_salt = salt,
                      .stream = true};
  VllmRequest wanted;
  wanted.body = MakeCompletion(body);
  if (!plan.empty()) {
    body.kv_params = {};
    body.cache_salt = {};
    wanted.plain_body = MakeCompletion(body);
  }
  wanted.session = request.session;
  wanted.prompt_tokens = static_cast<uint32_t>(request.prompt.tokens.size());
  for (const PromptSpan& span : spans) {
    wanted.planned.push_back({span.first, span.first + span.tokens});
  }
  wanted.traceparent = std::move(request.traceparent);
  wanted.silence = options_.silence;
  wanted.top_logprobs = request.sampling.logprobs.value_or(0);
  wanted.stop = std::move(request.stop);
  auto generation = std::make_unique<VllmGeneration>(*servers_, *tokenizer_, std::move(wanted));
  INFERSCALE_TRY(generation->Send());
  return generation;
}

// ---- encoding ----------------------------------------------------------------------------------

Result<uint64_t> VllmEngine::EncodeOne(const EncodeRequest& request, const EncodeItem& item,
                                       const std::stop_token& stop) {
  std::vector<Token> tokens = request.prefix;
  tokens.insert(tokens.end(), item.tokens.begin(), item.tokens.end());
  if (tokens.empty() || tokens.size() > info_.encode_tokens) {
    return Fail(Code::kInvalid, "{} tokens to encode, from 1 to {} are taken", tokens.size(),
                info_.encode_tokens);
  }
  Sampling sampling;
  sampling.max_tokens = 1;
  const std::string params = EncodeOp(request.tenant, item.captures, request.prefix.size());
  INFERSCALE_ASSIGN(
      const std::string body,
      servers_->Call(
          {.path = "/v1/completions",
           .body = MakeCompletion(
               {.model = info_.name, .prompt = tokens, .sampling = sampling, .kv_params = params}),
           .timeout = options_.silence},
          stop));
  INFERSCALE_ASSIGN(const CompletionPart part, ParseCompletion(body));
  const uint64_t cached = part.usage ? part.usage->cached.value_or(0) : 0;
  return tokens.size() - std::min<uint64_t>(cached, tokens.size());
}

Result<EncodeResult> VllmEngine::Encode(const EncodeRequest& request) {
  if (!info_.injection) {
    return Fail(Code::kUnsupported, "this model's KV can't be injected: {}",
                info_.self_test.summary);
  }
  const Stopwatch watch;
  EncodeResult result;
  if (request.items.empty()) return result;
  // The first alone: then the server has the prefix in its cache.
  INFERSCALE_ASSIGN(result.computed_tokens, EncodeOne(request, request.items[0], request.stop));

  std::atomic<size_t> next{1};
  std::stop_source failed;
  const std::stop_callback stopped(request.stop, [&] { failed.request_stop(); });
  std::mutex mutex;
  Status first_error;
  const auto work = [&] {
    while (!failed.stop_requested()) {
      const size_t i = next++;
      if (i >= request.items.size()) return;
      const auto computed = EncodeOne(request, request.items[i], failed.get_token());
      const std::lock_guard lock(mutex);
      if (computed) {
        result.computed_tokens += *computed;
      } else {
        if (first_error) first_error = tl::unexpected(computed.error());
        failed.request_stop();
      }
    }
  };
  {
    std::vector<std::jthread> workers;
    const size_t wanted = std::min<size_t>(kEncodersAtATime, request.items.size() - 1);
    for (size_t i = 0; i < wanted; ++i) workers.emplace_back(work);
  }
  INFERSCALE_TRY(first_error);
  if (request.stop.stop_requested()) return Fail(Code::kCancelled, "encoding was told to stop");
  result.ms = watch.Ms();
  return result;
}

}  // namespace

Result<std::unique_ptr<Engine>> OpenVllmEngine(const VllmEngineOptions& options) {
  auto engine = std::make_unique<VllmEngine>(options);
  INFERSCALE_TRY(engine->Open());
  return engine;
}

}  // namespace inferscale
