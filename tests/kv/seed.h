// A random number generator whose seed is printed with every failure.
#ifndef INFERSCALE_TESTS_KV_SEED_H_
#define INFERSCALE_TESTS_KV_SEED_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

namespace inferscale {

// Another seed each run; INFERSCALE_TEST_SEED=n repeats one. Use with SCOPED_TRACE(seed).
inline uint32_t TestSeed() {
  static const uint32_t seed = [] {
    const char* given = std::getenv("INFERSCALE_TEST_SEED");
    const uint32_t value = given != nullptr
                               ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10))
                               : std::random_device()();
    std::printf("INFERSCALE_TEST_SEED=%u\n", value);
    return value;
  }();
  return seed;
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}

  // From low to high, both included.
  template <typename T>
  T Between(T low, T high) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(std::uniform_int_distribution<int64_t>(
          static_cast<int64_t>(low), static_cast<int64_t>(high))(engine_));
    } else {
      return std::uniform_real_distribution<T>(low, high)(engine_);
    }
  }
  bool Chance(double probability) { return std::bernoulli_distribution(probability)(engine_); }
  float Normal() { return std::normal_distribution<float>()(engine_); }
  template <typename T>
  T Pick(std::initializer_list<T> choices) {
    return choices.begin()[Between<size_t>(0, choices.size() - 1)];
  }
  std::mt19937& engine() { return engine_; }

 private:
  std::mt19937 engine_;
};

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_KV_SEED_H_
