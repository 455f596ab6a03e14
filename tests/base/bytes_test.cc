#include "base/bytes.h"

#include <gtest/gtest.h>

namespace inferscale {
namespace {

TEST(Bytes, RoundTripAndAlign) {
  ByteWriter writer;
  writer.Write<uint32_t>(0xA1B2C3D4);
  writer.Write<int64_t>(-5);
  writer.Align(16);
  EXPECT_EQ(writer.size(), 16U);
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.Read<uint32_t>(), 0xA1B2C3D4U);
  EXPECT_EQ(reader.Read<int64_t>(), -5);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.remaining(), 4U);
}

TEST(Bytes, ReadingPastTheEndSticks) {
  ByteWriter writer;
  writer.Write<uint16_t>(7);
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.Read<uint64_t>(), 0U);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.Read<uint16_t>(), 0U);  // still failed, although two bytes are there
  EXPECT_FALSE(reader.ok());
}

}  // namespace
}  // namespace inferscale
