// The product of two matrices of bytes, by AVX-512 VNNI where the processor has it: one instruction
// multiplies 64 pairs of bytes, where one of floats multiplies 16.
//
// Not in Highway 1.0: its target with VNNI is compiled for AVX-VNNI, which not every processor with
// AVX-512 VNNI has.
#ifndef INFERSCALE_EMBED_BYTE_PRODUCT_H_
#define INFERSCALE_EMBED_BYTE_PRODUCT_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "embed/aligned_buffer.h"

namespace inferscale {

// Weights [out][in], each output as w ~ scale * code with codes in [-127, 127].
class ByteMatrix {
 public:
  static constexpr size_t kPanel = 32;  // `out` must be a multiple of this,
  static constexpr size_t kGroup = 4;   // and `in` of this

  ByteMatrix() = default;
  ByteMatrix(std::span<const float> weights, size_t out);

  bool empty() const { return out_ == 0; }
  size_t in() const { return in_; }
  size_t out() const { return out_; }
  // [in / kGroup][kPanel][kGroup]
  const int8_t* panel(size_t number) const { return codes_.get() + number * in_ * kPanel; }
  const float* scales() const { return scales_.get(); }
  const int32_t* sums() const { return sums_.get(); }  // of an output's codes

 private:
  size_t in_ = 0;
  size_t out_ = 0;
  AlignedBuffer<int8_t> codes_;
  AlignedBuffer<float> scales_;
  AlignedBuffer<int32_t> sums_;
};

// What a row of unsigned bytes stands for: scale * (code - zero).
struct RowCode {
  float scale = 0;
  int32_t zero = 0;
};

bool HasByteProduct();  // a fast one, on this processor

// y [rows][out] = x W^T + bias, for x as codes [rows][in]. The second needs HasByteProduct(); the
// first is its plain form.
void PlainByteProduct(const ByteMatrix& weights, const float* bias, const uint8_t* x,
                      std::span<const RowCode> rows, float* y);
void ByteProduct(const ByteMatrix& weights, const float* bias, const uint8_t* x,
                 std::span<const RowCode> rows, float* y);

}  // namespace inferscale

#endif  // INFERSCALE_EMBED_BYTE_PRODUCT_H_
