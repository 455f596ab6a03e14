#include "engine/llama/transpose.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace inferscale {
namespace {

// GCC's and Clang's own vectors rather than Highway, which without run-time dispatch has one lane
// here: interleaving needs no more than what every 64-bit machine has.
using Lanes = uint16_t __attribute__((vector_size(16)));

constexpr size_t kElement = sizeof(uint16_t);
constexpr size_t kSide = sizeof(Lanes) / kElement;
// A strip of columns as wide as a cache line is read to its end before the next begins, so the
// writes are few streams, each forward. Several tiles downwards fill whole lines of those.
constexpr size_t kStrip = 64 / kElement;
constexpr size_t kBand = 4 * kSide;

// Interleaving rows k and k + 4, for all k, moves the top bit of an element's row number to the
// bottom of its column number. After three rounds rows and columns have changed places.
inline void Interleave(const Lanes* in, Lanes* out) {
#pragma GCC unroll 4
  for (size_t k = 0; k < kSide / 2; ++k) {
    const Lanes a = in[k];
    const Lanes b = in[k + kSide / 2];
    out[2 * k] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    out[2 * k + 1] = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  }
}

// One square of 8 x 8.
inline void TransposeTile(MatrixRows<const std::byte> from, MatrixRows<std::byte> to) {
  Lanes a[kSide];
  Lanes b[kSide];
#pragma GCC unroll 8
  for (size_t i = 0; i < kSide; ++i) std::memcpy(&a[i], from.data + i * from.stride, sizeof(Lanes));
  Interleave(a, b);
  Interleave(b, a);
  Interleave(a, b);
#pragma GCC unroll 8
  for (size_t i = 0; i < kSide; ++i) std::memcpy(to.data + i * to.stride, &b[i], sizeof(Lanes));
}

// The part of `from` that begins at an element, and where it goes in `to`.
MatrixRows<const std::byte> At(MatrixRows<const std::byte> from, size_t row, size_t column) {
  return {from.data + row * from.stride + column * kElement, from.stride};
}
MatrixRows<std::byte> Across(MatrixRows<std::byte> to, size_t row, size_t column) {
  return {to.data + column * to.stride + row * kElement, to.stride};
}

}  // namespace

void Transpose(MatrixRows<const std::byte> from, MatrixRows<std::byte> to, size_t rows,
               size_t columns) {
  const size_t tiled_rows = rows / kSide * kSide;
  const size_t tiled_columns = columns / kSide * kSide;
  for (size_t strip = 0; strip < tiled_columns; strip += kStrip) {
    const size_t strip_end = std::min(tiled_columns, strip + kStrip);
    for (size_t band = 0; band < tiled_rows; band += kBand) {
      const size_t band_end = std::min(tiled_rows, band + kBand);
      for (size_t column = strip; column < strip_end; column += kSide) {
        for (size_t row = band; row < band_end; row += kSide) {
          TransposeTile(At(from, row, column), Across(to, row, column));
        }
      }
    }
  }
  // What no tile covers: the last rows, and the last columns of the others.
  TransposeReference(At(from, tiled_rows, 0), Across(to, tiled_rows, 0), rows - tiled_rows,
                     columns);
  TransposeReference(At(from, 0, tiled_columns), Across(to, 0, tiled_columns), tiled_rows,
                     columns - tiled_columns);
}

void TransposeReference(MatrixRows<const std::byte> from, MatrixRows<std::byte> to, size_t rows,
                        size_t columns) {
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = 0; column < columns; ++column) {
      std::memcpy(Across(to, row, column).data, At(from, row, column).data, kElement);
    }
  }
}

}  // namespace inferscale
