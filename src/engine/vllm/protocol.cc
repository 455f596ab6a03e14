#include "engine/vllm/protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <boost/json.hpp>
#include <charconv>
#include <iterator>
#include <limits>

namespace inferscale {
namespace {

namespace json = boost::json;

// ---- requests ----------------------------------------------------------------------------------

json::object Op(std::string_view op) { return {{"v", kVllmProtocol}, {"op", op}}; }
std::string Wrapped(json::object op) {
  return json::serialize(json::object{{"inferscale", std::move(op)}});
}

json::array Ids(std::span<const Token> tokens) {
  json::array ids;
  ids.reserve(tokens.size());
  for (const Token token : tokens) ids.emplace_back(token);
  return ids;
}

// ---- answers -----------------------------------------------------------------------------------

constexpr size_t kMaxDepth = 32;
constexpr uint64_t kMaxNumber = std::numeric_limits<int32_t>::max();

Result<json::object> ParseObject(std::string_view text) {
  json::parse_options options;
  options.max_depth = kMaxDepth;
  boost::system::error_code error;
  json::value root = json::parse({text.data(), text.size()}, error, {}, options);
  if (error) return Fail(Code::kCorrupt, "the answer is not JSON: {}", error.message());
  if (!root.is_object()) return Fail(Code::kCorrupt, "the answer is no JSON object");
  return std::move(root.as_object());
}

// Null if it is missing, null or of another type.
const json::object* ObjectIn(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains({key.data(), key.size()});
  return value == nullptr ? nullptr : value->if_object();
}
const json::array* ArrayIn(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains({key.data(), key.size()});
  return value == nullptr ? nullptr : value->if_array();
}
std::string StringIn(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains({key.data(), key.size()});
  const json::string* text = value == nullptr ? nullptr : value->if_string();
  return text == nullptr ? std::string() : std::string(text->data(), text->size());
}
bool TrueIn(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains({key.data(), key.size()});
  return value != nullptr && value->is_bool() && value->get_bool();
}

std::optional<uint32_t> AsCount(const json::value& value) {
  if (value.is_int64() && value.get_int64() >= 0 &&
      static_cast<uint64_t>(value.get_int64()) <= kMaxNumber) {
    return static_cast<uint32_t>(value.get_int64());
  }
  return std::nullopt;
}
std::optional<uint32_t> CountIn(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains({key.data(), key.size()});
  return value == nullptr ? std::nullopt : AsCount(*value);
}
double NumberIn(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains({key.data(), key.size()});
  return value != nullptr && value->is_number() ? value->to_number<double>() : 0;
}

Result<std::vector<Token>> AsTokens(const json::array& array) {
  std::vector<Token> tokens;
  tokens.reserve(array.size());
  for (const json::value& value : array) {
    const auto id = AsCount(value);
    if (!id) return Fail(Code::kCorrupt, "the answer has a token id that is none");
    tokens.push_back(static_cast<Token>(*id));
  }
  return tokens;
}

Result<TokenizerInfo> AsTokenizer(const json::object& object) {
  TokenizerInfo info;
  if (const auto bos = CountIn(object, "bos")) info.bos = static_cast<Token>(*bos);
  info.chat_template = StringIn(object, "chat_template");
  const json::object* special = ObjectIn(object, "special");
  if (special == nullptr) return Fail(Code::kCorrupt, "the connector names no special tokens");
  for (const auto& item : *special) {
    const auto id = AsCount(item.value());
    if (!id) return Fail(Code::kCorrupt, "the connector names a special token without an id");
    info.special.emplace_back(std::string(item.key()), static_cast<Token>(*id));
  }
  return info;
}

Result<KvShape> AsShape(const json::object& object) {
  KvShape shape;
  shape.layers = CountIn(object, "layers").value_or(0);
  shape.kv_heads = CountIn(object, "kv_heads").value_or(0);
  shape.k_dim = shape.v_dim = CountIn(object, "dim").value_or(0);
  const auto dtype = ParseDtype(StringIn(object, "dtype"));
  if (!dtype || !shape.Validate()) return Fail(Code::kCorrupt, "the connector names no KV shape");
  shape.dtype = *dtype;
  return shape;
}

void ReadSelfTest(const json::object& object, ConnectorInfo& info) {
  const std::string state = StringIn(object, "state");
  if (state == "passed") info.self_test = SelfTestState::kPassed;
  if (state == "failed") info.self_test = SelfTestState::kFailed;
  info.worst = NumberIn(object, "worst");
  if (const json::array* layers = ArrayIn(object, "layers")) {
    for (const json::value& layer : *layers) {
      if (layer.is_number()) info.layers.push_back(layer.to_number<double>());
    }
  }
}

// As OpenAI's completions have them. Of one place the names of tokens may be alike; then the server
// has kept one.
Result<std::vector<PlaceLogprobs>> AsLogprobs(const json::object& object) {
  const json::array* tokens = ArrayIn(object, "tokens");
  const json::array* values = ArrayIn(object, "token_logprobs");
  const json::array* tops = ArrayIn(object, "top_logprobs");
  if (tokens == nullptr || values == nullptr || tokens->size() != values->size() ||
      (tops != nullptr && tops->size() != tokens->size())) {
    return Fail(Code::kCorrupt, "the logprobs are not those of the tokens");
  }
  std::vector<PlaceLogprobs> places;
  for (size_t i = 0; i < tokens->size(); ++i) {
    const json::string* text = (*tokens)[i].if_string();
    if (text == nullptr || !(*values)[i].is_number()) {
      return Fail(Code::kCorrupt, "a token has no logprob");
    }
    PlaceLogprobs place{{std::string(*text), (*values)[i].to_number<float>()}, {}};
    const json::object* top = tops == nullptr ? nullptr : (*tops)[i].if_object();
    if (top != nullptr) {
      for (const auto& [name, value] : *top) {
        if (!value.is_number()) return Fail(Code::kCorrupt, "a token has no logprob");
        place.top.push_back({std::string(name), value.to_number<float>()});
      }
    }
    std::stable_sort(place.top.begin(), place.top.end(),
                     [](const auto& a, const auto& b) { return a.logprob > b.logprob; });
    places.push_back(std::move(place));
  }
  return places;
}

}  // namespace

std::string InfoOp() { return Wrapped(Op("info")); }

std::string SelfTestOp(int step) {
  json::object op = Op("self_test");
  op["step"] = step;
  return Wrapped(std::move(op));
}

std::string InjectOp(std::string_view tenant, std::span<const PromptSpan> spans) {
  json::object op = Op("inject");
  op["tenant"] = tenant;
  std::string packed;
  const auto append = [&packed](uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) {
      fmt::format_to(std::back_inserter(packed), "{:02x}", value >> shift & 0xFFU);
    }
  };
  for (const PromptSpan& span : spans) {
    for (const uint32_t number : {span.first, span.tokens, span.record_token}) append(number);
    packed += span.key.Hex();
  }
  op["spans"] = packed;
  return Wrapped(std::move(op));
}

std::string PlanSalt(const Fingerprint& fingerprint, std::string_view tenant,
                     std::span<const PromptSpan> spans) {
  const auto append = [](std::string& to, uint64_t value, std::endian order) {
    if (order != std::endian::native) value = __builtin_bswap64(value);
    to.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  const auto append_hash = [&](std::string& to, const Hash128& hash) {
    append(to, hash.high, std::endian::big);
    append(to, hash.low, std::endian::big);
  };
  std::string of_fingerprint, rows, keys;
  append_hash(of_fingerprint, fingerprint);
  uint32_t end = spans.empty() ? 0 : spans.front().first;
  for (const PromptSpan& span : spans) {  // the first group: up to a gap
    if (span.first != end) break;
    end += span.tokens;
    for (const uint32_t number : {span.first, span.tokens, span.record_token}) {
      append(rows, number, std::endian::little);
    }
    append_hash(keys, span.key);
  }
  Hasher hasher;
  for (const std::string_view field : {std::string_view("inject"), std::string_view(of_fingerprint),
                                       tenant, std::string_view(rows), std::string_view(keys)}) {
    hasher.Add(field);
  }
  return "inferscale:" + hasher.Digest().Hex();
}

std::string EncodeOp(std::string_view tenant, std::span<const EncodeItem::Range> captures,
                     size_t before) {
  json::object op = Op("encode");
  op["tenant"] = tenant;
  json::array& list = op["records"].emplace_array();
  for (const EncodeItem::Range& range : captures) {
    list.push_back(json::array{range.key.Hex(), before + range.first, range.tokens});
  }
  return Wrapped(std::move(op));
}

std::string MakeCompletion(const CompletionBody& body) {
  const Sampling& sampling = body.sampling;
  json::object out = {{"model", body.model},
                      {"prompt", Ids(body.prompt)},
                      {"max_tokens", sampling.max_tokens},
                      {"temperature", sampling.temperature},
                      {"top_p", sampling.top_p},
                      {"top_k", sampling.top_k > 0 ? sampling.top_k : -1},
                      {"min_p", sampling.min_p},
                      {"repetition_penalty", 1.0},
                      {"presence_penalty", 0.0},
                      {"frequency_penalty", 0.0},
                      {"stream", body.stream},
                      {"return_token_ids", body.stream}};
  // As this many bits as JSON and Python agree on.
  if (sampling.temperature > 0) out["seed"] = sampling.seed & std::numeric_limits<int64_t>::max();
  if (!sampling.stop.empty()) out["stop"] = json::value_from(sampling.stop);
  if (!sampling.grammar.empty()) out["structured_outputs"] = {{"grammar", sampling.grammar}};
  if (!sampling.json_schema.empty()) {
    out["structured_outputs"] = {{"json", json::parse(sampling.json_schema)}};
  }
  if (sampling.logprobs) out["logprobs"] = *sampling.logprobs;
  if (!body.stop_tokens.empty()) out["stop_token_ids"] = Ids(body.stop_tokens);
  if (!body.cache_salt.empty()) out["cache_salt"] = body.cache_salt;
  if (body.stream) out["stream_options"] = {{"include_usage", true}};
  std::string text = json::serialize(out);
  if (!body.kv_params.empty()) {
    text.pop_back();
    text.append(R"(,"kv_transfer_params":)").append(body.kv_params).append("}");
  }
  return text;
}

std::string MakeTokenize(std::string_view model, std::string_view text, bool with_bos) {
  return json::serialize(
      json::object{{"model", model}, {"prompt", text}, {"add_special_tokens", with_bos}});
}

std::string MakeDetokenize(std::string_view model, std::span<const Token> tokens) {
  return json::serialize(json::object{{"model", model}, {"tokens", Ids(tokens)}});
}

Result<ServedModel> ParseModels(std::string_view body) {
  INFERSCALE_ASSIGN(const json::object root, ParseObject(body));
  const json::array* data = ArrayIn(root, "data");
  const json::object* first =
      data == nullptr || data->empty() ? nullptr : data->front().if_object();
  ServedModel model;
  if (first != nullptr) model.id = StringIn(*first, "id");
  if (model.id.empty()) return Fail(Code::kCorrupt, "the list of models names none");
  model.context_tokens = CountIn(*first, "max_model_len").value_or(0);
  return model;
}

Result<ConnectorInfo> ParseInfo(std::string_view body) {
  INFERSCALE_ASSIGN(const json::object root, ParseObject(body));
  const json::object* params = ObjectIn(root, "kv_transfer_params");
  const json::object* said = params == nullptr ? nullptr : ObjectIn(*params, "inferscale");
  if (said == nullptr) return Fail(Code::kNotFound, "InferScale's connector does not answer");
  if (const auto version = CountIn(*said, "v"); version != kVllmProtocol) {
    return Fail(Code::kUnsupported, "the connector speaks version {} of the protocol, not {}",
                version.value_or(0), kVllmProtocol);
  }
  ConnectorInfo info;
  info.version = StringIn(*said, "version");
  info.vllm = StringIn(*said, "vllm");
  info.ranks = std::max(CountIn(*said, "ranks").value_or(1), 1U);
  info.block_tokens = std::max(CountIn(*said, "block_tokens").value_or(1), 1U);
  info.context_tokens = CountIn(*said, "context_tokens").value_or(0);
  info.dir = StringIn(*said, "dir");
  info.injection = TrueIn(*said, "injection");
  info.reason = StringIn(*said, "reason");
  if (const json::object* test = ObjectIn(*said, "self_test")) ReadSelfTest(*test, info);
  if (const json::object* tokenizer = ObjectIn(*said, "tokenizer")) {
    INFERSCALE_ASSIGN(info.tokenizer, AsTokenizer(*tokenizer));
  }
  // A model whose KV is not kept has none to tell of.
  const json::object* shape = ObjectIn(*said, "shape");
  info.fingerprint = Fingerprint::FromHex(StringIn(*said, "fingerprint"));
  if (shape != nullptr && !info.fingerprint.IsZero()) {
    INFERSCALE_ASSIGN(info.shape, AsShape(*shape));
  } else if (info.injection || info.reason.empty()) {
    return Fail(Code::kCorrupt, "the connector says no fingerprint or shape");
  }
  return info;
}

Result<TokenizerInfo> ParseTokenizerInfo(std::string_view body) {
  INFERSCALE_ASSIGN(const json::object root, ParseObject(body));
  const json::object* added = ObjectIn(root, "added_tokens_decoder");
  if (added == nullptr) return Fail(Code::kCorrupt, "the tokenizer names no special tokens");
  TokenizerInfo info;
  info.chat_template = StringIn(root, "chat_template");
  for (const auto& item : *added) {
    Token id = -1;
    const std::string_view key = item.key();
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    const json::object* token = item.value().if_object();
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || token == nullptr) {
      return Fail(Code::kCorrupt, "the tokenizer names a special token without an id");
    }
    info.special.emplace_back(StringIn(*token, "content"), id);
  }
  return info;
}

Result<std::vector<Token>> ParseTokens(std::string_view body) {
  INFERSCALE_ASSIGN(const json::object root, ParseObject(body));
  const json::array* tokens = ArrayIn(root, "tokens");
  if (tokens == nullptr) return Fail(Code::kCorrupt, "the answer has no tokens");
  return AsTokens(*tokens);
}

Result<std::string> ParseDetokenized(std::string_view body) {
  INFERSCALE_ASSIGN(const json::object root, ParseObject(body));
  const json::value* prompt = root.if_contains("prompt");
  if (prompt == nullptr || !prompt->is_string()) {
    return Fail(Code::kCorrupt, "the answer has no text");
  }
  return StringIn(root, "prompt");
}

Result<CompletionPart> ParseCompletion(std::string_view text) {
  INFERSCALE_ASSIGN(const json::object root, ParseObject(text));
  // What the server says may quote the prompt, so it stays out of the message.
  if (root.contains("error") || StringIn(root, "object") == "error") {
    return Fail(Code::kTransient, "the server reports an error");
  }
  CompletionPart part;
  const json::array* choices = ArrayIn(root, "choices");
  if (choices != nullptr && !choices->empty()) {
    const json::object* choice = choices->front().if_object();
    if (choice == nullptr) return Fail(Code::kCorrupt, "a choice is no object");
    part.text = StringIn(*choice, "text");
    if (const json::array* ids = ArrayIn(*choice, "token_ids")) {
      INFERSCALE_ASSIGN(part.tokens, AsTokens(*ids));
    }
    const std::string finish = StringIn(*choice, "finish_reason");
    if (finish == "stop") part.finish = FinishReason::kStop;
    if (finish == "length") part.finish = FinishReason::kLength;
    if (const json::object* logprobs = ObjectIn(*choice, "logprobs")) {
      INFERSCALE_ASSIGN(part.logprobs, AsLogprobs(*logprobs));
      // The last token is the end of the turn, unless a text was what stopped it.
      const json::value* reason = choice->if_contains("stop_reason");
      const bool by_text = reason != nullptr && reason->is_string();
      if (finish == "stop" && !by_text && !part.logprobs.empty()) part.logprobs.pop_back();
    }
    if (finish == "abort" || finish == "error") {
      return Fail(Code::kTransient, "the server gave the answer up");
    }
  }
  if (const json::object* usage = ObjectIn(root, "usage")) {
    part.usage.emplace();
    part.usage->prompt = CountIn(*usage, "prompt_tokens").value_or(0);
    part.usage->completion = CountIn(*usage, "completion_tokens").value_or(0);
    if (const json::object* details = ObjectIn(*usage, "prompt_tokens_details")) {
      part.usage->cached = CountIn(*details, "cached_tokens");
    }
  }
  return part;
}

}  // namespace inferscale
