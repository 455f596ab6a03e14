// The inner loop of inject and capture: rows of one layer's keys or values from one place to
// another, with conversion and rotation. Internal to ops.
#ifndef INFERSCALE_OPS_MOVE_ROWS_H_
#define INFERSCALE_OPS_MOVE_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kv/rope.h"
#include "kv/shape.h"

namespace inferscale {

// Rows [token][head][dim] in memory; strides in bytes, a head's dims contiguous.
template <typename Byte>
struct Rows {
  Byte* data = nullptr;
  int64_t token_stride = 0;
  int64_t head_stride = 0;
  Dtype dtype = Dtype::kF16;
};

// cos and sin of consecutive positions, spread out the way that the kernel reads them. A row holds
// `width` factors for a pair's own element, then `width` for its partner:
//   NeoX:        cos[pair] ..., sin[pair] ...
//   interleaved: cos of pairs 0 0 1 1 ..., sin of pairs -0 +0 -1 +1 ...
class Rotations {
 public:
  // For positions position, ..., position + tokens - 1. `inverse`: takes the rotation off again.
  void Fill(const RopeTable& table, int32_t position, uint32_t tokens, bool inverse);

  const float* Row(uint32_t token) const { return values_.data() + size_t{token} * 2 * width_; }
  size_t width() const { return width_; }

 private:
  size_t width_ = 0;
  std::vector<float> values_;
  std::vector<float> scratch_;
};

struct MoveJob {
  Rows<const std::byte> from;
  Rows<std::byte> to;
  uint32_t tokens = 0;
  uint32_t heads = 0;
  uint32_t dims = 0;
  // What to do with the first rotary_dims; 0 only copies or converts.
  RopeKind kind = RopeKind::kNone;
  uint32_t rotary_dims = 0;
  const Rotations* rotations = nullptr;  // its row `first_rotation` belongs to the first token
  uint32_t first_rotation = 0;
  // If `from` is quantised, one of: the factors of channels, [head][dim], or of rows, [token][head]
  // floats at any address.
  const float* channel_scales = nullptr;
  const std::byte* row_scales = nullptr;
};

// `to` is not quantised.
void MoveRows(const MoveJob& job);

}  // namespace inferscale

#endif  // INFERSCALE_OPS_MOVE_ROWS_H_
