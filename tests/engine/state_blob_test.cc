#include "engine/llama/state_blob.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace inferscale {
namespace {

constexpr KvShape kShape{.layers = 3, .kv_heads = 2, .k_dim = 8, .v_dim = 4, .dtype = Dtype::kF16};

std::vector<std::byte> MakeBlob(const KvShape& shape, const StateForm& form,
                                const std::vector<int32_t>& positions, uint32_t seed) {
  std::vector<std::byte> blob(StateBlobSize(shape, form, positions.size()));
  const StateRows rows = WriteStateBlob(shape, form, positions, blob);
  std::mt19937 random(seed);
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (size_t i = 0; i < positions.size() * rows.k_row_bytes; ++i) {
      rows.k[layer][i] = static_cast<std::byte>(random());
    }
    for (size_t i = 0; i < positions.size() * rows.v_row_bytes; ++i) {
      rows.v[layer][i] = static_cast<std::byte>(random());
    }
  }
  return blob;
}

TEST(StateBlob, WhatIsWrittenIsRead) {
  std::mt19937 random(std::random_device{}());
  const uint32_t seed = static_cast<uint32_t>(random());
  SCOPED_TRACE("seed " + std::to_string(seed));
  random.seed(seed);
  for (int round = 0; round < 50; ++round) {
    const KvShape shape{.layers = 1 + static_cast<uint32_t>(random() % 5),
                        .kv_heads = 1 + static_cast<uint32_t>(random() % 4),
                        .k_dim = 2 * (1 + static_cast<uint32_t>(random() % 40)),
                        .v_dim = 1 + static_cast<uint32_t>(random() % 80),
                        .dtype = static_cast<Dtype>(random() % 3)};
    const StateForm form{.streams = 1 + static_cast<uint32_t>(random() % 4),
                         .transposed_values = random() % 2 == 0};
    std::vector<int32_t> positions(1 + random() % 20);
    for (int32_t& position : positions) position = static_cast<int32_t>(random() % 1000);
    const std::vector<std::byte> blob = MakeBlob(shape, form, positions, seed);

    const auto rows = ParseStateBlob(blob);
    ASSERT_TRUE(rows) << rows.error().message;
    EXPECT_EQ(rows->form, form);
    EXPECT_EQ(rows->positions, positions);
    EXPECT_EQ(rows->layers, shape.layers);
    EXPECT_EQ(rows->dtype, shape.dtype);
    EXPECT_EQ(rows->k_row_bytes, shape.KRowBytes());
    EXPECT_EQ(rows->v_row_bytes, shape.VRowBytes());
    // The last layer's values end where the closing streams begin.
    EXPECT_EQ(rows->v.back() + positions.size() * shape.VRowBytes() + 4 * (form.streams - 1),
              blob.data() + blob.size());
    const CacheLayout layout = rows->Layout(shape);
    EXPECT_EQ(layout.k.head, static_cast<int64_t>(shape.k_dim * DtypeSize(shape.dtype)));
    EXPECT_EQ(layout.v.token, static_cast<int64_t>(shape.VRowBytes()));
    EXPECT_EQ(layout.k_base.size(), shape.layers);
  }
}

TEST(StateBlob, EmptySequenceHasNoRows) {
  ByteWriter writer;
  writer.Write(uint32_t{0xaf143cd8});
  writer.Write(int32_t{3});
  writer.Write(uint32_t{2});
  writer.Write(uint32_t{0});
  writer.Write(uint32_t{0});
  const auto rows = ParseStateBlob(writer.bytes());
  ASSERT_TRUE(rows);
  EXPECT_TRUE(rows->positions.empty());
  EXPECT_TRUE(rows->k.empty());
}

TEST(StateBlob, EveryTruncationIsAnError) {
  for (const bool transposed : {false, true}) {
    const std::vector<std::byte> blob =
        MakeBlob(kShape, {.streams = 2, .transposed_values = transposed}, {4, 5, 6}, 1);
    ASSERT_TRUE(ParseStateBlob(blob));
    for (size_t size = 0; size < blob.size(); ++size) {
      EXPECT_FALSE(ParseStateBlob(std::span(blob).first(size))) << size;
    }
  }
}

TEST(StateBlob, SaysWhatIsWrong) {
  std::vector<std::byte> good = MakeBlob(kShape, {}, {0, 1}, 1);
  const auto with = [&](size_t offset, uint32_t value) {
    std::vector<std::byte> blob = good;
    std::memcpy(blob.data() + offset, &value, sizeof(value));
    const auto rows = ParseStateBlob(blob);
    return rows ? std::string("accepted") : rows.error().message;
  };
  // Offsets as in state_blob.h: 12 bytes of head, rows, 2 x 12 of meta, then the layers.
  EXPECT_EQ(with(0, 1), "state: begins with 00000001");
  EXPECT_EQ(with(8, 0), "state: 0 streams");
  EXPECT_NE(with(12, 1000000).find("1000000 rows do not fit"), std::string::npos);
  EXPECT_NE(with(20, 2).find("2 sequences"), std::string::npos);
  EXPECT_NE(with(16, 0x80000000U).find("position -2147483648"), std::string::npos);
  EXPECT_EQ(with(40, 2), "state: value form 2");
  EXPECT_EQ(with(44, 0), "state: 0 layers");
  EXPECT_EQ(with(48, 8), "state: cache type 8 is not f32, f16 or bf16");
  EXPECT_NE(with(52, 0x7fffffff).find("exceed"), std::string::npos);
  // One form read as the other: the dims would be the upper half of the rows' bytes.
  EXPECT_EQ(with(40, 1), "state: V of layer 0 has elements of 16 bytes in f16");
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{0});
  EXPECT_EQ(ParseStateBlob(longer).error().message, "state: 1 bytes follow the last stream");

  good = MakeBlob(kShape, {.transposed_values = true}, {0, 1}, 1);
  const size_t values = 48 + 3 * (12 + 2 * kShape.KRowBytes());
  EXPECT_EQ(with(values + 4, 4), "state: V of layer 0 has elements of 4 bytes in f16");
  EXPECT_NE(with(values + 8, 0).find("rows of 0 bytes"), std::string::npos);
  EXPECT_NE(with(values + 8, 0xffffffffU).find("rows of 8589934590 bytes in V"), std::string::npos);
  EXPECT_EQ(with(40, 0).substr(0, 9), "state: 2 ");
}

TEST(StateBlob, RandomBytesNeverCrash) {
  std::mt19937 random(99);
  const std::vector<std::byte> rows_form = MakeBlob(kShape, {.streams = 2}, {0, 1, 2, 3}, 1);
  const std::vector<std::byte> transposed =
      MakeBlob(kShape, {.streams = 2, .transposed_values = true}, {0, 1, 2, 3}, 1);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> blob = round % 2 == 0 ? rows_form : transposed;
    for (int i = 0; i < 3; ++i) blob[random() % 120] = static_cast<std::byte>(random());
    const auto rows = ParseStateBlob(blob);
    if (!rows) {
      EXPECT_FALSE(rows.error().message.empty());
    }
  }
}

}  // namespace
}  // namespace inferscale
