// How long a search takes over the real store: warm, after a change, and for a user not in memory.
//
//   INFERSCALE_BENCH_USERS=10000 bench_search     a store of 1,000,000 facts (takes minutes to
//   fill)
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <stdexcept>

#include "memory/search_index.h"

namespace inferscale {
namespace {

constexpr size_t kDims = 384;
constexpr size_t kFactsPerUser = 100;
constexpr size_t kFactsOfHeavyUser = 10'000;
const Hash128 kEmbedder{1, 2};

size_t Users() {
  const char* users = std::getenv("INFERSCALE_BENCH_USERS");
  return users == nullptr ? 200 : std::strtoul(users, nullptr, 10);
}

std::vector<float> RandomUnitVector(std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> vector(kDims);
  float squares = 0;
  for (float& value : vector) {
    value = normal(random);
    squares += value * value;
  }
  for (float& value : vector) value /= std::sqrt(squares);
  return vector;
}

// Words as frequent as in real text (Zipf): the n-th of 20,000 with a weight of 1 / n.
std::string RandomText(std::mt19937_64& random, size_t words) {
  static const double kLogSize = std::log(20'000.0);
  std::uniform_real_distribution<double> uniform(0, kLogSize);
  std::string text;
  for (size_t i = 0; i < words; ++i) {
    text += fmt::format("{}w{}", i == 0 ? "" : " ", static_cast<int>(std::exp(uniform(random))));
  }
  return text;
}

// One store for all benchmarks: a user with many facts, and many users with few.
class World {
 public:
  World() {
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    FactStoreOptions options;
    options.path = (dir_ / "memory.db").string();
    auto opened = FactStore::Open(clock_, options);
    if (!opened) throw std::runtime_error(opened.error().message);
    store_ = std::move(*opened);
    for (size_t i = 0; i < kFactsOfHeavyUser; i += 1000) Fill("heavy", 1000);
    for (size_t user = 0; user < Users(); ++user) Fill(UserName(user), kFactsPerUser);
  }
  ~World() {
    store_.reset();
    std::filesystem::remove_all(dir_);
  }

  static std::string UserName(size_t number) { return "user" + std::to_string(number); }

  void Fill(const std::string& user, size_t count) {
    std::vector<Fact> facts(count);
    std::vector<std::vector<float>> vectors(count);
    for (size_t i = 0; i < count; ++i) {
      facts[i].scope.user = user;
      facts[i].text = RandomText(random_, 14);
      facts[i].speaker = i % 2 == 0 ? "Ana" : "Ben";
      facts[i].when_ms = int64_t{1'700'000'000'000} + static_cast<int64_t>(i) * 3'600'000;
      vectors[i] = RandomUnitVector(random_);
    }
    if (auto added = store_->Add(facts, vectors, kEmbedder); !added) {
      throw std::runtime_error(added.error().message);
    }
  }

  FactStore& store() { return *store_; }
  const Clock& clock() { return clock_; }
  std::mt19937_64& random() { return random_; }

 private:
  const std::filesystem::path dir_ = std::filesystem::temp_directory_path() / "inferscale_bench";
  SystemClock clock_;
  std::mt19937_64 random_{1};
  std::unique_ptr<FactStore> store_;
};

World& TheWorld() {
  static World world;
  return world;
}

void Search(benchmark::State& state, SearchIndex& index, const std::string& user) {
  std::mt19937_64& random = TheWorld().random();
  // The same few questions again and again would be too kind to the processor's caches and
  // branches.
  static const auto questions = [&] {
    std::vector<std::pair<std::string, std::vector<float>>> made;
    for (int i = 0; i < 256; ++i) {
      made.emplace_back(RandomText(random, 8), RandomUnitVector(random));
    }
    return made;
  }();
  const auto& [text, vector] = questions[random() % questions.size()];
  SearchQuery query;
  query.scope.user = user;
  query.text = text;
  query.vector = vector;
  auto hits = index.Search(query);
  if (!hits || hits->empty()) state.SkipWithError("search failed");
  benchmark::DoNotOptimize(hits);
}

void HeavyUserWarm(benchmark::State& state) {
  SearchIndex index(TheWorld().store(), TheWorld().clock(), kEmbedder, {});
  Search(state, index, "heavy");
  for (auto _ : state) Search(state, index, "heavy");
  state.counters["MiB"] = static_cast<double>(index.memory_bytes()) / (1 << 20);
}
BENCHMARK(HeavyUserWarm)->Unit(benchmark::kMicrosecond);

void HeavyUserAfterAnAddition(benchmark::State& state) {
  SearchIndex index(TheWorld().store(), TheWorld().clock(), kEmbedder, {});
  Search(state, index, "heavy");
  for (auto _ : state) {
    state.PauseTiming();
    TheWorld().Fill("heavy", 1);
    state.ResumeTiming();
    Search(state, index, "heavy");
  }
}
BENCHMARK(HeavyUserAfterAnAddition)->Unit(benchmark::kMicrosecond)->Iterations(50);

void HeavyUserFirstTouch(benchmark::State& state) {
  SearchIndex index(TheWorld().store(), TheWorld().clock(), kEmbedder, {1});  // keeps nobody
  for (auto _ : state) Search(state, index, "heavy");
}
BENCHMARK(HeavyUserFirstTouch)->Unit(benchmark::kMicrosecond)->Iterations(10);

void OneOfManyWarm(benchmark::State& state) {
  SearchIndex index(TheWorld().store(), TheWorld().clock(), kEmbedder, {});
  Search(state, index, World::UserName(7));
  for (auto _ : state) Search(state, index, World::UserName(7));
  state.counters["KiB"] = static_cast<double>(index.memory_bytes()) / (1 << 10);
}
BENCHMARK(OneOfManyWarm)->Unit(benchmark::kMicrosecond);

void OneOfManyFirstTouch(benchmark::State& state) {
  SearchIndex index(TheWorld().store(), TheWorld().clock(), kEmbedder, {1});  // keeps nobody
  size_t user = 0;
  for (auto _ : state) Search(state, index, World::UserName(user++ * 7919 % Users()));
}
BENCHMARK(OneOfManyFirstTouch)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace inferscale

BENCHMARK_MAIN();
