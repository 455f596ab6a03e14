// Turns rows of a matrix into columns: a context without flash attention keeps its values that way.
#ifndef INFERSCALE_ENGINE_LLAMA_TRANSPOSE_H_
#define INFERSCALE_ENGINE_LLAMA_TRANSPOSE_H_

#include <cstddef>

namespace inferscale {

// Rows that begin `stride` bytes after each other, at any address.
template <typename Byte>
struct MatrixRows {
  Byte* data = nullptr;
  size_t stride = 0;
};

// to[column][row] = from[row][column], for elements of 2 bytes. The two must not overlap.
void Transpose(MatrixRows<const std::byte> from, MatrixRows<std::byte> to, size_t rows,
               size_t columns);

// The plainest code for the same.
void TransposeReference(MatrixRows<const std::byte> from, MatrixRows<std::byte> to, size_t rows,
                        size_t columns);

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_LLAMA_TRANSPOSE_H_
