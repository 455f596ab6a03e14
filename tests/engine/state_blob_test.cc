#include "engine/llama/state_blob.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace inferscale {
namespace {

constexpr KvShape kShape{.layers = 3, .kv_heads = 2, .k_dim = 8, .v_dim = 4, .dtype = Dtype::kF16};

std::vector<std::byte> MakeBlob(std::span<const StatePart> parts, const StateForm& form,
                                uint32_t seed) {
  std::vector<std::byte> blob(StateBlobSize(parts, form));
  std::mt19937 random(seed);
  for (const StateRows& rows : WriteStateBlob(parts, form, blob)) {
    const auto fill = [&](std::byte* base, size_t row_bytes) {
      for (size_t i = 0; i < rows.positions.size() * row_bytes; ++i) {
        base[i] = static_cast<std::byte>(random());
      }
    };
    for (uint32_t layer = 0; layer < rows.layers; ++layer) {
      fill(rows.k[layer], rows.k_row_bytes);
      fill(rows.v[layer], rows.v_row_bytes);
    }
  }
  return blob;
}

std::vector<std::byte> MakeBlob(const KvShape& shape, const StateForm& form,
                                const std::vector<int32_t>& positions, uint32_t seed) {
  const StatePart part{shape, positions};
  return MakeBlob(std::span(&part, 1), form, seed);
}

Result<StateRows> ParseOne(ByteSpan blob) {
  INFERSCALE_ASSIGN(auto caches, ParseStateBlob(blob, 1));
  return std::move(caches.front());
}

TEST(StateBlob, WhatIsWrittenIsRead) {
  std::mt19937 random(std::random_device{}());
  const uint32_t seed = static_cast<uint32_t>(random());
  SCOPED_TRACE("seed " + std::to_string(seed));
  random.seed(seed);
  for (int round = 0; round < 50; ++round) {
    const auto below = [&](uint32_t bound) { return static_cast<uint32_t>(random() % bound); };
    const KvShape shape{.layers = 0,
                        .kv_heads = 1 + below(4),
                        .k_dim = 2 * (1 + below(40)),
                        .v_dim = 1 + below(80),
                        .dtype = static_cast<Dtype>(below(3))};
    const StateForm form{.streams = 1 + below(4), .transposed_values = below(2) == 0};
    std::vector<StatePart> parts(1 + below(3));
    for (StatePart& part : parts) {
      part.shape = shape;
      part.shape.layers = 1 + below(5);
      part.positions.resize(1 + below(20));
      for (int32_t& position : part.positions) position = static_cast<int32_t>(below(1000));
    }
    const std::vector<std::byte> blob = MakeBlob(parts, form, seed);

    const auto caches = ParseStateBlob(blob, parts.size());
    ASSERT_TRUE(caches) << caches.error().message;
    ASSERT_EQ(caches->size(), parts.size());
    std::mt19937 written(seed);  // as MakeBlob drew them
    for (size_t i = 0; i < parts.size(); ++i) {
      const StateRows& rows = (*caches)[i];
      EXPECT_EQ(rows.form, form);
      EXPECT_EQ(rows.positions, parts[i].positions);
      EXPECT_EQ(rows.layers, parts[i].shape.layers);
      EXPECT_EQ(rows.dtype, shape.dtype);
      EXPECT_EQ(rows.k_row_bytes, shape.KRowBytes());
      EXPECT_EQ(rows.v_row_bytes, shape.VRowBytes());
      const auto equal = [&](const std::byte* base, size_t row_bytes) {
        for (size_t j = 0; j < rows.positions.size() * row_bytes; ++j) {
          if (base[j] != static_cast<std::byte>(written())) return false;
        }
        return true;
      };
      for (uint32_t layer = 0; layer < rows.layers; ++layer) {
        EXPECT_TRUE(equal(rows.k[layer], rows.k_row_bytes)) << "K of " << layer;
        EXPECT_TRUE(equal(rows.v[layer], rows.v_row_bytes)) << "V of " << layer;
      }
      const CacheLayout layout = rows.Layout(shape, rows.k, rows.v);
      EXPECT_EQ(layout.k.head, static_cast<int64_t>(shape.k_dim * DtypeSize(shape.dtype)));
      EXPECT_EQ(layout.v.token, static_cast<int64_t>(shape.VRowBytes()));
      EXPECT_EQ(layout.k_base.size(), rows.layers);
    }
    // Read as of a model with another number of caches it is not accepted.
    EXPECT_FALSE(ParseStateBlob(blob, parts.size() + 1));
    if (parts.size() > 1) {
      EXPECT_FALSE(ParseStateBlob(blob, parts.size() - 1));
    }
  }
}

TEST(StateBlob, EmptySequenceHasNoRows) {
  ByteWriter writer;
  writer.Write(uint32_t{0xaf143cd8});
  writer.Write(int32_t{3});
  writer.Write(uint32_t{2});
  writer.Write(uint32_t{0});
  writer.Write(uint32_t{0});
  const auto rows = ParseOne(writer.bytes());
  ASSERT_TRUE(rows);
  EXPECT_TRUE(rows->positions.empty());
  EXPECT_TRUE(rows->k.empty());
}

TEST(StateBlob, EveryTruncationIsAnError) {
  const std::vector<StatePart> parts = {{kShape, {4, 5, 6}}, {kShape, {5, 6}}};
  for (const bool transposed : {false, true}) {
    for (const size_t caches : {1U, 2U}) {
      const std::vector<std::byte> blob = MakeBlob(
          std::span(parts).first(caches), {.streams = 2, .transposed_values = transposed}, 1);
      ASSERT_TRUE(ParseStateBlob(blob, caches));
      for (size_t size = 0; size < blob.size(); ++size) {
        EXPECT_FALSE(ParseStateBlob(std::span(blob).first(size), caches)) << size;
      }
    }
  }
}

// A sequence that has left the window: the second cache has fewer rows, or none.
TEST(StateBlob, CachesHaveRowsOfTheirOwn) {
  const std::vector<StatePart> parts = {{kShape, {0, 1, 2, 3}}, {kShape, {3, 2}}};
  std::vector<std::byte> blob = MakeBlob(parts, {}, 1);
  auto caches = ParseStateBlob(blob, 2);
  ASSERT_TRUE(caches) << caches.error().message;
  EXPECT_EQ((*caches)[0].positions.size(), 4U);
  EXPECT_EQ((*caches)[1].positions, (std::vector<int32_t>{3, 2}));

  blob = MakeBlob(std::span(parts).first(1), {}, 1);
  ByteWriter empty;
  empty.Write(uint32_t{1});
  empty.Write(uint32_t{0});
  blob.insert(blob.end(), empty.bytes().begin(), empty.bytes().end());
  caches = ParseStateBlob(blob, 2);
  ASSERT_TRUE(caches) << caches.error().message;
  EXPECT_TRUE((*caches)[1].positions.empty());
}

TEST(StateBlob, SaysWhatIsWrong) {
  std::vector<std::byte> good = MakeBlob(kShape, {}, {0, 1}, 1);
  const auto with = [&](size_t offset, uint32_t value) {
    std::vector<std::byte> blob = good;
    std::memcpy(blob.data() + offset, &value, sizeof(value));
    const auto rows = ParseOne(blob);
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
  EXPECT_EQ(ParseOne(longer).error().message, "state: 1 bytes follow the last stream");

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
    for (const size_t caches : {1U, 2U}) {
      const auto rows = ParseStateBlob(blob, caches);
      if (!rows) {
        EXPECT_FALSE(rows.error().message.empty());
      }
    }
  }
}

}  // namespace
}  // namespace inferscale
