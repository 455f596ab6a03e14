// The arithmetic of a BERT encoder on the CPU. Matrices are rows of float, one row per token.
//
// Why not libllama's: its product of two matrices sums across vector lanes at the end of every dot
// product, and with rows of 384 elements that is half of the work. Here weights are packed so that
// lanes are output columns. Where the processor multiplies bytes (AVX-512 VNNI), weights and what
// they are multiplied with become 8 bits: four times the products an instruction.
#ifndef INFERSCALE_EMBED_BERT_KERNELS_H_
#define INFERSCALE_EMBED_BERT_KERNELS_H_

#include <cstddef>
#include <span>

#include "embed/aligned_buffer.h"
#include "embed/byte_product.h"

namespace inferscale {

// Sizes of rows, of heads and of outputs must be multiples of this.
constexpr size_t kBertPanel = ByteMatrix::kPanel;

enum class BertPrecision { kFloat, kByte };
inline BertPrecision FastestPrecision() {
  return HasByteProduct() ? BertPrecision::kByte : BertPrecision::kFloat;
}

// y = x W^T + b, for weights [out][in] as checkpoints have them.
class BertLinear {
 public:
  BertLinear() = default;
  // For bytes `in` must be a multiple of ByteMatrix::kGroup, and HasByteProduct().
  BertLinear(std::span<const float> weights, std::span<const float> bias, BertPrecision precision);

  size_t in() const { return in_; }
  size_t out() const { return out_; }
  const float* bias() const { return bias_.get(); }
  // One of them is there.
  const float* panel(size_t number) const { return packed_.get() + number * in_ * kBertPanel; }
  const ByteMatrix& bytes() const { return bytes_; }

 private:
  size_t in_ = 0;
  size_t out_ = 0;
  AlignedBuffer<float> bias_;
  AlignedBuffer<float> packed_;  // [out / kBertPanel][in][kBertPanel]
  ByteMatrix bytes_;
};

enum class BertActivation { kNone, kGelu };  // GELU in its tanh form, as libllama has it

// x [rows][in] to y [rows][out]. As bytes, each row of x is x ~ scale * (code - zero), with scale
// and zero from its own extremes.
void ApplyLinear(const BertLinear& linear, const float* x, size_t rows, BertActivation activation,
                 float* y);

// x = LayerNorm(x + add) * gain + bias, for each row of x.
void AddAndNorm(float* x, const float* add, size_t rows, std::span<const float> gain,
                std::span<const float> bias, float epsilon);

// Every token of one text attends to every token of it. `qkv` has rows of queries, keys and values
// of all heads, 3 * heads * head_dim; `out` has rows of heads * head_dim; `scratch` has
// (head_dim + 1) * tokens floats, rounded up for tokens to a multiple of kBertPanel.
void AttendAll(const float* qkv, size_t tokens, size_t heads, size_t head_dim, float* scratch,
               float* out);

}  // namespace inferscale

#endif  // INFERSCALE_EMBED_BERT_KERNELS_H_
