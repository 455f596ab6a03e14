#include "engine/llama/transpose.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace inferscale {
namespace {

// Shapes with and without whole tiles, at odd addresses, with room between the rows that must stay
// as it is.
TEST(Transpose, EqualsTheReference) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    const size_t rows = random() % 150;
    const size_t columns = random() % 150;
    const size_t from_stride = columns * 2 + random() % 9;
    const size_t to_stride = rows * 2 + random() % 9;
    const size_t offset = random() % 4;
    std::vector<std::byte> from(offset + rows * from_stride);
    for (std::byte& byte : from) byte = static_cast<std::byte>(random());
    std::vector<std::byte> expected(offset + columns * to_stride, std::byte{0x5a});
    std::vector<std::byte> actual = expected;
    TransposeReference({from.data() + offset, from_stride}, {expected.data() + offset, to_stride},
                       rows, columns);
    Transpose({from.data() + offset, from_stride}, {actual.data() + offset, to_stride}, rows,
              columns);
    ASSERT_EQ(actual, expected) << rows << " x " << columns;
  }
}

TEST(Transpose, RowsBecomeColumns) {
  const uint16_t from[2][3] = {{1, 2, 3}, {4, 5, 6}};
  uint16_t to[3][2] = {};
  Transpose({reinterpret_cast<const std::byte*>(from), sizeof(from[0])},
            {reinterpret_cast<std::byte*>(to), sizeof(to[0])}, 2, 3);
  const uint16_t expected[3][2] = {{1, 4}, {2, 5}, {3, 6}};
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 2; ++j) EXPECT_EQ(to[i][j], expected[i][j]);
  }
}

}  // namespace
}  // namespace inferscale
