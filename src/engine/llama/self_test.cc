#include "engine/llama/self_test.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "ops/capture/capture.h"
#include "ops/inject/inject.h"

namespace inferscale {
namespace {

// Large enough to tell bases and factors apart, small enough for every context.
constexpr int32_t kPosition = 137;
// What a right rotation may differ by; a wrong one differs by about 1. On processors that is a few
// units of float's last place. On GPUs attention rounds to half floats, not alike at two positions,
// and that grows from layer to layer.
double Tolerance() { return llama_supports_gpu_offload() ? 0.1 : 1e-4; }

Result<std::vector<std::byte>> StateOfOneToken(llama_context* context, llama_seq_id seq,
                                               int32_t position) {
  const llama_vocab* vocab = llama_model_get_vocab(llama_get_model(context));
  // Any token with a row of its own; control tokens may have untrained ones.
  llama_token token = llama_vocab_n_tokens(vocab) / 2;
  int32_t count = 1;
  llama_seq_id* seqs = &seq;
  int8_t logits = 0;
  llama_batch batch{};
  batch.n_tokens = 1;
  batch.token = &token;
  batch.pos = &position;
  batch.n_seq_id = &count;
  batch.seq_id = &seqs;
  batch.logits = &logits;
  if (const int code = llama_decode(context, batch); code != 0) {
    return Fail(Code::kInternal, "llama_decode of one token returned {}", code);
  }
  std::vector<std::byte> state(llama_state_seq_get_size(context, seq));
  const size_t read = llama_state_seq_get_data(context, reinterpret_cast<uint8_t*>(state.data()),
                                               state.size(), seq);
  llama_memory_seq_rm(llama_get_memory(context), seq, -1, -1);
  if (read != state.size()) {
    return Fail(Code::kInternal, "llama.cpp gave {} bytes of a state of {}", read, state.size());
  }
  return state;
}

const char* FormName(const StateForm& form) {
  return form.transposed_values ? "transposed" : "plain";
}

// One token's KV in all layers, whichever caches they are in.
struct TokenRows {
  std::vector<std::byte> state;
  StateForm form;
  std::vector<std::byte*> k, v;  // [layer], into state

  CacheLayout Layout(const ModelKv& kv) const {
    const KvShape shape = kv.ShapeOf(0, Dtype::kF32);
    StateRows row;
    row.dtype = shape.dtype;
    row.k_row_bytes = shape.KRowBytes();
    row.v_row_bytes = shape.VRowBytes();
    return row.Layout(shape, k, v);
  }
};

Status CheckShape(const StateRows& rows, const KvShape& expected) {
  if (rows.layers != expected.layers || rows.dtype != expected.dtype ||
      rows.k_row_bytes != expected.KRowBytes() || rows.v_row_bytes != expected.VRowBytes() ||
      rows.positions.size() != 1) {
    return Fail(
        Code::kUnsupported,
        "one token's state has {} rows, {} layers, {} and {} bytes of K and V in {}, not {}",
        rows.positions.size(), rows.layers, rows.k_row_bytes, rows.v_row_bytes,
        DtypeName(rows.dtype), expected.ToString());
  }
  return {};
}

Result<TokenRows> RowsOfOneToken(llama_context* context, llama_seq_id seq, int32_t position,
                                 const ModelKv& kv, Dtype dtype) {
  TokenRows token;
  INFERSCALE_ASSIGN(token.state, StateOfOneToken(context, seq, position));
  INFERSCALE_ASSIGN(const auto caches, ParseStateBlob(token.state, kv.caches.size()));
  token.k.resize(kv.shape.layers);
  token.v.resize(kv.shape.layers);
  token.form = caches.front().form;
  for (size_t cache = 0; cache < caches.size(); ++cache) {
    INFERSCALE_TRY(CheckShape(caches[cache], kv.ShapeOf(cache, dtype)));
    if (caches[cache].form != token.form) {
      return Fail(Code::kUnsupported, "the caches have states of different forms");
    }
    for (uint32_t i = 0; i < caches[cache].layers; ++i) {
      const uint32_t layer = kv.caches[cache][i];
      token.k[layer] = caches[cache].k[i];
      token.v[layer] = caches[cache].v[i];
    }
  }
  return token;
}

// |a - b| / |b|, the largest elements.
double RelativeError(std::span<const float> a, std::span<const float> b) {
  double error = 0;
  double size = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    error = std::max(error, std::abs(double{a[i]} - double{b[i]}));
    size = std::max(size, std::abs(double{b[i]}));
  }
  return std::isfinite(error) ? error / size : 1e30;
}

std::vector<float> KeysOf(const TokenRows& rows, const ModelKv& kv, uint32_t layer) {
  std::vector<float> keys(size_t{kv.shape.kv_heads} * kv.shape.k_dim);
  std::memcpy(keys.data(), rows.k[layer], keys.size() * sizeof(float));
  return keys;
}

// R(kPosition) R(0)^-1 of the keys, all layers, by the very code that captures and injects. R(0)
// is no rotation, but with YaRN it has a magnitude.
Result<TokenRows> Rotate(const TokenRows& at_zero, const ModelKv& kv) {
  KvShape shape = kv.shape;
  shape.dtype = Dtype::kF32;
  const std::vector<RopeTable> tables(kv.ropes.specs.begin(), kv.ropes.specs.end());
  const RopeTables ropes{tables, kv.ropes.layer_spec};
  std::vector<std::byte> record(shape.TokenBytes());
  const MutableFactKvView view{shape, 1, record.data()};
  CacheSpan span;
  span.tokens = 1;
  const CaptureSpan capture{view, span};
  INFERSCALE_TRY(Capture(std::span(&capture, 1), ropes, at_zero.Layout(kv)));

  TokenRows rotated;
  rotated.state.resize(shape.TokenBytes());
  const MutableFactKvView rows{shape, 1, rotated.state.data()};
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    rotated.k.push_back(rows.K(layer));
    rotated.v.push_back(rows.V(layer));
  }
  span.position = kPosition;
  const InjectSpan inject{view, span};
  INFERSCALE_TRY(Inject(std::span(&inject, 1), ropes, rotated.Layout(kv)));
  return rotated;
}

std::string Describe(const ModelKv& kv, double worst, size_t without_positions) {
  std::string text =
      fmt::format("keys rotate as expected on {} layers, error {:.1e}", kv.shape.layers, worst);
  if (kv.window > 0) {
    text += fmt::format(", {} layers see {} tokens", kv.caches.back().size(), kv.window);
  }
  if (without_positions > 0) {
    text += fmt::format(", {} layers without positions", without_positions);
  }
  return text;
}

void Judge(const TokenRows& rotated, const TokenRows& at_zero, const TokenRows& at_position,
           const ModelKv& kv, LlamaSelfTest& test) {
  test.ropes = kv.ropes;
  const double tolerance = Tolerance();
  std::string wrong;
  size_t without_positions = 0;
  double worst = 0;
  for (uint32_t layer = 0; layer < kv.shape.layers; ++layer) {
    const std::vector<float> actual = KeysOf(at_position, kv, layer);
    double error = RelativeError(KeysOf(rotated, kv, layer), actual);
    const double unrotated = RelativeError(KeysOf(at_zero, kv, layer), actual);
    if (error > tolerance && unrotated < tolerance) {
      error = unrotated;
      test.ropes.layer_spec[layer] = static_cast<uint8_t>(kv.ropes.specs.size());
      ++without_positions;
    }
    if (error > tolerance) wrong += (wrong.empty() ? "" : ", ") + std::to_string(layer);
    worst = std::max(worst, error);
    test.result.layer_error.push_back(error);
  }
  if (without_positions > 0) {
    RopeSpec none;
    none.head_dim = kv.shape.k_dim;
    test.ropes.specs.push_back(none);
  }
  test.result.passed = wrong.empty();
  test.result.summary =
      test.result.passed
          ? Describe(kv, worst, without_positions)
          : fmt::format("keys do not rotate as the model's metadata says on layers {}", wrong);
}

Status RunOn(llama_context* context, const ModelKv& kv, LlamaSelfTest& test) {
  INFERSCALE_ASSIGN(const auto at_zero, RowsOfOneToken(context, 0, 0, kv, Dtype::kF32));
  INFERSCALE_ASSIGN(const auto at_position, RowsOfOneToken(context, 1, kPosition, kv, Dtype::kF32));
  INFERSCALE_ASSIGN(const TokenRows rotated, Rotate(at_zero, kv));
  Judge(rotated, at_zero, at_position, kv, test);
  return {};
}

}  // namespace

Result<LlamaSelfTest> RunSelfTest(llama_context* context, const LlamaModelTraits& traits) {
  LlamaSelfTest test;
  if (!traits.no_injection.empty()) {
    test.result.summary = traits.no_injection;
    return test;
  }
  if (const Status status = RunOn(context, traits.kv, test); !status) {
    if (status.error().code == Code::kInternal) {
      return tl::unexpected<Error>(status.error());
    }
    test.result.passed = false;
    test.result.summary = status.error().message;
  }
  return test;
}

Status ProbeStateLayout(llama_context* context, const ModelKv& kv, Dtype dtype,
                        const StateForm& form) {
  INFERSCALE_ASSIGN(const TokenRows rows, RowsOfOneToken(context, 0, 0, kv, dtype));
  if (rows.form != form) {
    return Fail(Code::kUnsupported, "the state has {} streams and {} values, not {} and {}",
                rows.form.streams, FormName(rows.form), form.streams, FormName(form));
  }
  return {};
}

}  // namespace inferscale
