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

Status CheckShape(const StateRows& rows, const KvShape& shape, Dtype dtype) {
  KvShape expected = shape;
  expected.dtype = dtype;
  if (rows.layers != expected.layers || rows.dtype != dtype ||
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

std::vector<float> KeysOf(const StateRows& rows, uint32_t layer) {
  std::vector<float> keys(rows.k_row_bytes / sizeof(float));
  std::memcpy(keys.data(), rows.k[layer], rows.k_row_bytes);
  return keys;
}

// R(kPosition) R(0)^-1 of the keys, all layers, by the very code that captures and injects. R(0)
// is no rotation, but with YaRN it has a magnitude.
Result<std::vector<std::byte>> Rotate(const StateRows& at_zero, const LlamaModelTraits& traits) {
  KvShape shape = traits.shape;
  shape.dtype = Dtype::kF32;
  const RopeTable table(traits.rope);
  const std::vector<uint8_t> layer_table(shape.layers, 0);
  const RopeTables tables{std::span(&table, 1), layer_table};
  std::vector<std::byte> record(shape.TokenBytes());
  const MutableFactKvView view{shape, 1, record.data()};
  CacheSpan span;
  span.tokens = 1;
  const CaptureSpan capture{view, span};
  INFERSCALE_TRY(Capture(std::span(&capture, 1), tables, at_zero.Layout(shape)));

  std::vector<std::byte> blob(StateBlobSize(shape, {}, 1));
  const StateRows rows = WriteStateBlob(shape, {}, std::span(&kPosition, 1), blob);
  span.position = kPosition;
  const InjectSpan inject{view, span};
  INFERSCALE_TRY(Inject(std::span(&inject, 1), tables, rows.Layout(shape)));
  return blob;
}

void Judge(const StateRows& rotated, const StateRows& at_zero, const StateRows& at_position,
           const LlamaModelTraits& traits, LlamaSelfTest& test) {
  test.ropes.specs = {traits.rope};
  test.ropes.layer_spec.assign(traits.shape.layers, 0);
  const double tolerance = Tolerance();
  std::string wrong;
  size_t without_positions = 0;
  double worst = 0;
  for (uint32_t layer = 0; layer < traits.shape.layers; ++layer) {
    const std::vector<float> actual = KeysOf(at_position, layer);
    double error = RelativeError(KeysOf(rotated, layer), actual);
    const double unrotated = RelativeError(KeysOf(at_zero, layer), actual);
    if (error > tolerance && unrotated < tolerance) {
      error = unrotated;
      test.ropes.layer_spec[layer] = 1;
      ++without_positions;
    }
    if (error > tolerance) wrong += (wrong.empty() ? "" : ", ") + std::to_string(layer);
    worst = std::max(worst, error);
    test.result.layer_error.push_back(error);
  }
  if (without_positions > 0) {
    RopeSpec none;
    none.head_dim = traits.rope.head_dim;
    test.ropes.specs.push_back(none);
  }
  test.result.passed = wrong.empty();
  test.result.summary =
      test.result.passed
          ? fmt::format("keys rotate as expected on {} layers, error {:.1e}{}", traits.shape.layers,
                        worst,
                        without_positions > 0
                            ? fmt::format(", {} layers without positions", without_positions)
                            : "")
          : fmt::format("keys do not rotate as the model's metadata says on layers {}", wrong);
}

Status RunOn(llama_context* context, const LlamaModelTraits& traits, LlamaSelfTest& test) {
  INFERSCALE_ASSIGN(const auto zero_bytes, StateOfOneToken(context, 0, 0));
  INFERSCALE_ASSIGN(const auto moved_bytes, StateOfOneToken(context, 1, kPosition));
  INFERSCALE_ASSIGN(const StateRows at_zero, ParseStateBlob(zero_bytes));
  INFERSCALE_ASSIGN(const StateRows at_position, ParseStateBlob(moved_bytes));
  INFERSCALE_TRY(CheckShape(at_zero, traits.shape, Dtype::kF32));
  INFERSCALE_TRY(CheckShape(at_position, traits.shape, Dtype::kF32));
  INFERSCALE_ASSIGN(const auto rotated_bytes, Rotate(at_zero, traits));
  INFERSCALE_ASSIGN(const StateRows rotated, ParseStateBlob(rotated_bytes));
  Judge(rotated, at_zero, at_position, traits, test);
  return {};
}

}  // namespace

Result<LlamaSelfTest> RunSelfTest(llama_context* context, const LlamaModelTraits& traits) {
  LlamaSelfTest test;
  if (!traits.no_injection.empty()) {
    test.result.summary = traits.no_injection;
    return test;
  }
  if (const Status status = RunOn(context, traits, test); !status) {
    if (status.error().code == Code::kInternal) {
      return tl::unexpected<Error>(status.error());
    }
    test.result.passed = false;
    test.result.summary = status.error().message;
  }
  return test;
}

Status ProbeStateLayout(llama_context* context, const KvShape& shape, Dtype dtype,
                        const StateForm& form) {
  INFERSCALE_ASSIGN(const auto bytes, StateOfOneToken(context, 0, 0));
  INFERSCALE_ASSIGN(const StateRows rows, ParseStateBlob(bytes));
  if (rows.form != form) {
    return Fail(Code::kUnsupported, "the state has {} streams and {} values, not {} and {}",
                rows.form.streams, FormName(rows.form), form.streams, FormName(form));
  }
  return CheckShape(rows, shape, dtype);
}

}  // namespace inferscale
