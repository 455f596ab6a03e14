#include "embed/bert_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace inferscale {
namespace {

class BertKernelsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const unsigned seed = std::random_device()();
    std::printf("seed %u\n", seed);
    random_.seed(seed);
  }
  size_t Between(size_t low, size_t high) {
    return std::uniform_int_distribution<size_t>(low, high)(random_);
  }
  std::vector<float> Floats(size_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = normal(random_);
    return values;
  }
  static void ExpectNear(const std::vector<float>& got, const std::vector<double>& expected,
                         double tolerance) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(double{got[i]}, expected[i], tolerance) << "element " << i;
    }
  }

  std::mt19937 random_;
};

double Gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST_F(BertKernelsTest, LinearIsTheProductRowByRow) {
  for (int round = 0; round < 40; ++round) {
    const size_t in = Between(1, 200);
    const size_t out = kBertPanel * Between(1, 4);
    const size_t rows = Between(1, 40);
    const bool gelu = round % 2 == 1;
    const std::vector<float> weights = Floats(in * out), bias = Floats(out), x = Floats(rows * in);
    std::vector<double> expected;
    for (size_t r = 0; r < rows; ++r) {
      for (size_t o = 0; o < out; ++o) {
        double sum = bias[o];
        for (size_t i = 0; i < in; ++i) sum += double{x[r * in + i]} * double{weights[o * in + i]};
        expected.push_back(gelu ? Gelu(sum) : sum);
      }
    }
    std::vector<float> y(rows * out);
    ApplyLinear(BertLinear(weights, bias, BertPrecision::kFloat), x.data(), rows,
                gelu ? BertActivation::kGelu : BertActivation::kNone, y.data());
    ExpectNear(y, expected, 1e-3);
  }
}

// Values are off by what their codes are coarse: the error of a sum of `in` products of values near
// 1, of which a weight's is up to 1 / 254 of its row's greatest and x's 1 / 510 of its row's range.
TEST_F(BertKernelsTest, LinearOfBytesIsNearTheProduct) {
  if (!HasByteProduct()) GTEST_SKIP() << "no products of bytes on this processor";
  for (int round = 0; round < 40; ++round) {
    const size_t in = kBertPanel * Between(1, 12);
    const size_t out = kBertPanel * Between(1, 4);
    const size_t rows = Between(1, 40);
    const BertActivation activation =
        round % 2 == 1 ? BertActivation::kGelu : BertActivation::kNone;
    const std::vector<float> weights = Floats(in * out), bias = Floats(out);
    std::vector<float> x = Floats(rows * in);
    for (float& value : x) value += static_cast<float>(round % 3);  // zero is not in the middle
    std::fill_n(x.begin(), in, round % 5 == 0 ? 0.0F : 1.0F);       // a row without a range
    std::vector<float> floats(rows * out), bytes(rows * out);
    ApplyLinear(BertLinear(weights, bias, BertPrecision::kFloat), x.data(), rows, activation,
                floats.data());
    ApplyLinear(BertLinear(weights, bias, BertPrecision::kByte), x.data(), rows, activation,
                bytes.data());
    const double tolerance = 0.15 * std::sqrt(static_cast<double>(in));
    ExpectNear(bytes, {floats.begin(), floats.end()}, tolerance);
  }
}

TEST_F(BertKernelsTest, ByteProductIsThePlainOne) {
  if (!HasByteProduct()) GTEST_SKIP() << "no products of bytes on this processor";
  for (int round = 0; round < 40; ++round) {
    const size_t in = ByteMatrix::kGroup * Between(1, 400);
    const size_t out = ByteMatrix::kPanel * Between(1, 4);
    const size_t rows = Between(1, 40);
    const std::vector<float> bias = Floats(out);
    const ByteMatrix weights(Floats(in * out), out);
    std::vector<uint8_t> x(rows * in);
    for (uint8_t& code : x) code = round % 4 == 0 ? 255 : static_cast<uint8_t>(Between(0, 255));
    std::vector<RowCode> codes(rows);
    for (RowCode& code : codes) code = {0.01F, static_cast<int32_t>(Between(0, 255))};
    std::vector<float> plain(rows * out), fast(rows * out);
    PlainByteProduct(weights, bias.data(), x.data(), codes, plain.data());
    ByteProduct(weights, bias.data(), x.data(), codes, fast.data());
    ExpectNear(fast, {plain.begin(), plain.end()}, 1e-2);
  }
}

TEST_F(BertKernelsTest, NormAddsThenCentersAndScalesEachRow) {
  for (int round = 0; round < 20; ++round) {
    const size_t dims = kBertPanel * Between(1, 8);
    const size_t rows = Between(1, 9);
    std::vector<float> x = Floats(rows * dims);
    const std::vector<float> add = Floats(rows * dims), gain = Floats(dims), bias = Floats(dims);
    std::vector<double> expected;
    for (size_t r = 0; r < rows; ++r) {
      const auto at = [&](size_t i) { return double{x[r * dims + i]} + double{add[r * dims + i]}; };
      double mean = 0, variance = 0;
      for (size_t i = 0; i < dims; ++i) mean += at(i) / static_cast<double>(dims);
      for (size_t i = 0; i < dims; ++i) {
        variance += (at(i) - mean) * (at(i) - mean) / static_cast<double>(dims);
      }
      for (size_t i = 0; i < dims; ++i) {
        expected.push_back((at(i) - mean) / std::sqrt(variance + 1e-5) * double{gain[i]} +
                           double{bias[i]});
      }
    }
    AddAndNorm(x.data(), add.data(), rows, gain, bias, 1e-5F);
    ExpectNear(x, expected, 1e-3);
  }
}

TEST_F(BertKernelsTest, AttentionIsTheWeightedMeanOfAllValues) {
  for (int round = 0; round < 20; ++round) {
    const size_t heads = Between(1, 3);
    const size_t head_dim = kBertPanel * Between(1, 2);
    const size_t tokens = Between(1, 70);
    const size_t dims = heads * head_dim;
    const std::vector<float> qkv = Floats(tokens * 3 * dims);
    const auto at = [&](size_t token, size_t part, size_t head, size_t i) {
      return double{qkv[token * 3 * dims + part * dims + head * head_dim + i]};
    };
    std::vector<double> expected(tokens * dims);
    for (size_t head = 0; head < heads; ++head) {
      for (size_t t = 0; t < tokens; ++t) {
        std::vector<double> weights(tokens);
        double sum = 0;
        for (size_t other = 0; other < tokens; ++other) {
          double score = 0;
          for (size_t i = 0; i < head_dim; ++i) score += at(t, 0, head, i) * at(other, 1, head, i);
          weights[other] = std::exp(score / std::sqrt(static_cast<double>(head_dim)));
          sum += weights[other];
        }
        for (size_t i = 0; i < head_dim; ++i) {
          double& value = expected[t * dims + head * head_dim + i];
          for (size_t other = 0; other < tokens; ++other) {
            value += weights[other] / sum * at(other, 2, head, i);
          }
        }
      }
    }
    const size_t padded = (tokens + kBertPanel - 1) / kBertPanel * kBertPanel;
    std::vector<float> scratch((head_dim + 1) * padded);
    std::vector<float> out(tokens * dims);
    AttendAll(qkv.data(), tokens, heads, head_dim, scratch.data(), out.data());
    ExpectNear(out, expected, 1e-3);
  }
}

}  // namespace
}  // namespace inferscale
