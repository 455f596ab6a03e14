// How fast facts are remembered, without a language model: durable single adds, bulk adds, and what
// memory that takes.
//
//   add_facts [--single N] [--bulk N] [--dir DIR]
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "app/app.h"
#include "base/clock.h"

namespace inferscale {
namespace {

// Resident memory in MiB, now.
double ResidentMib() {
  std::ifstream file("/proc/self/statm");
  uint64_t total = 0;
  uint64_t resident = 0;
  file >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1048576.0;
}

// A dated turn of about 25 words over a vocabulary of 5,000.
Fact MakeFact(std::mt19937& random, int64_t number) {
  Fact fact;
  fact.scope.user = "user" + std::to_string(number / 5000);
  fact.scope.run = "run" + std::to_string(number / 40);
  fact.speaker = number % 2 == 0 ? "Ana" : "Ben";
  fact.when_ms = 1700000000000 + number * 60000;
  for (int word = 0; word < 18; ++word) fact.text += fmt::format("w{} ", random() % 5000);
  return fact;
}

int Main(int argc, char** argv) {
  size_t single = 300;
  size_t bulk = 2000;
  std::filesystem::path dir =
      std::filesystem::temp_directory_path() / fmt::format("inferscale-add-{}", getpid());
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--single") single = std::stoul(argv[i + 1]);
    if (flag == "--bulk") bulk = std::stoul(argv[i + 1]);
    if (flag == "--dir") dir = argv[i + 1];
  }
  AppOptions options;
  options.data_dir = dir.string();
  const char* embed_model = std::getenv("INFERSCALE_EMBED_MODEL");
  options.embed_model = embed_model == nullptr ? "" : embed_model;
  auto app = App::Open(options, Need::kSearch);
  if (!app) {
    fmt::print(stderr, "add: {}\n", app.error().message);
    return 1;
  }
  std::mt19937 random(1);
  int64_t number = 0;
  const double before = ResidentMib();

  std::vector<double> ms;
  for (size_t i = 0; i < single; ++i) {
    const Fact fact = MakeFact(random, number++);
    const Stopwatch watch;
    if (auto added = (*app)->Add(std::span(&fact, 1)); !added) {
      fmt::print(stderr, "add: {}\n", added.error().message);
      return 1;
    }
    ms.push_back(watch.Ms());
  }
  std::sort(ms.begin(), ms.end());
  if (!ms.empty()) {
    fmt::print("single add, durable: p50 {:.2f} ms, p99 {:.2f} ms, max {:.2f} ms over {}\n",
               ms[ms.size() / 2], ms[ms.size() * 99 / 100], ms.back(), ms.size());
  }

  const Stopwatch watch;
  for (size_t done = 0; done < bulk;) {
    std::vector<Fact> batch;
    for (; batch.size() < 640 && done < bulk; ++done) batch.push_back(MakeFact(random, number++));
    if (auto added = (*app)->Add(batch); !added) {
      fmt::print(stderr, "add: {}\n", added.error().message);
      return 1;
    }
    if (done % 6400 == 0) {
      fmt::print("  {} facts, resident {:.0f} MiB\n", done, ResidentMib());
      std::fflush(stdout);
    }
  }
  fmt::print("bulk: {:.0f} facts/s over {}; resident {:.0f} MiB, {:.0f} MiB before the first\n",
             static_cast<double>(bulk) / watch.Ms() * 1000, bulk, ResidentMib(), before);
  app->reset();
  std::filesystem::remove_all(dir);
  return 0;
}

}  // namespace
}  // namespace inferscale

int main(int argc, char** argv) { return inferscale::Main(argc, argv); }
