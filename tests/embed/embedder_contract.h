// What every Embedder promises, whatever computes the vectors.
#ifndef INFERSCALE_TESTS_EMBED_EMBEDDER_CONTRACT_H_
#define INFERSCALE_TESTS_EMBED_EMBEDDER_CONTRACT_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "embed/embedder.h"

namespace inferscale {

inline double Dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

inline void ExpectUnitVectors(const Embedder& embedder,
                              const std::vector<std::vector<float>>& vectors, size_t count) {
  ASSERT_EQ(vectors.size(), count);
  for (const auto& vector : vectors) {
    ASSERT_EQ(vector.size(), embedder.dims());
    EXPECT_NEAR(Dot(vector, vector), 1.0, 1e-4);
  }
}

inline void CheckEmbedderContract(Embedder& embedder) {
  EXPECT_GT(embedder.dims(), 0U);
  EXPECT_FALSE(embedder.identity().IsZero());
  EXPECT_EQ(embedder.identity(), embedder.identity());
  EXPECT_FALSE(embedder.name().empty());

  const auto none = embedder.Embed({});
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_TRUE(none->empty());

  // Nothing that a text may hold is an error.
  const std::vector<std::string> odd = {"",
                                        " \n\t",
                                        "\xff\xfe broken \xc3",
                                        std::string("nul\0byte", 8),
                                        "[CLS] [SEP] [MASK]",
                                        "\U0001f600\u200d\U0001f525",
                                        std::string(16384, 'a'),
                                        std::string(16384, '!')};
  const auto vectors = embedder.Embed(odd);
  ASSERT_TRUE(vectors) << vectors.error().message;
  ExpectUnitVectors(embedder, *vectors, odd.size());

  // A text's vector does not depend on its neighbours, and the order is that of the texts.
  std::vector<std::string> many;
  for (int i = 0; i < 150; ++i) {
    many.push_back("note " + std::to_string(i) + std::string(static_cast<size_t>(i % 7), 'x') +
                   " about the garden");
  }
  const auto together = embedder.Embed(many);
  ASSERT_TRUE(together) << together.error().message;
  ExpectUnitVectors(embedder, *together, many.size());
  for (size_t i = 0; i < many.size(); i += 29) {
    const auto alone = embedder.EmbedOne(many[i]);
    ASSERT_TRUE(alone) << alone.error().message;
    EXPECT_GT(Dot(*alone, (*together)[i]), 0.9999) << i;
  }
  EXPECT_LT(Dot((*together)[0], (*together)[1]), 0.9999);

  // Several callers at a time, of one text or of more.
  std::vector<std::thread> threads;
  std::vector<double> worst(12, 0.0);
  for (size_t t = 0; t < worst.size(); ++t) {
    threads.emplace_back([&, t] {
      const size_t first = 10 * t;
      const auto mine = embedder.Embed(std::span(many).subspan(first, 1 + t % 4 * 7));
      if (!mine) return;
      worst[t] = 1.0;
      for (size_t i = 0; i < mine->size(); ++i) {
        worst[t] = std::min(worst[t], Dot((*mine)[i], (*together)[first + i]));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const double cosine : worst) EXPECT_GT(cosine, 0.9999);
}

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_EMBED_EMBEDDER_CONTRACT_H_
