// How fast texts are embedded by each arithmetic, and how near the vectors are to those of
// libllama.
//
//   bench_embed FACTS QUESTIONS [MODEL.gguf]
//
// Both files have a text a line. The model is INFERSCALE_EMBED_MODEL if none is named. "Same of 20"
// is the share of the 20 nearest facts of a question that are also among its 20 nearest by
// libllama.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "base/clock.h"
#include "embed/llama_embedder.h"

namespace inferscale {
namespace {

constexpr size_t kNearest = 20;

using Vectors = std::vector<std::vector<float>>;

std::vector<std::string> Lines(const char* path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(std::move(line));
  return lines;
}

float Dot(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0F);
}

std::vector<size_t> Nearest(const Vectors& facts, const std::vector<float>& question) {
  std::vector<float> scores;
  for (const auto& fact : facts) scores.push_back(Dot(fact, question));
  std::vector<size_t> order(facts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const size_t count = std::min(kNearest, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  order.resize(count);
  std::ranges::sort(order);
  return order;
}

struct Embedded {
  Vectors facts;
  Vectors questions;
  double per_second = 0;
};

Result<Embedded> EmbedAll(BertArithmetic bert, const std::string& model,
                          const std::vector<std::string>& facts,
                          const std::vector<std::string>& questions) {
  INFERSCALE_ASSIGN(const auto embedder, OpenLlamaEmbedder({.model_path = model, .bert = bert}));
  Embedded embedded;
  INFERSCALE_ASSIGN(embedded.questions, embedder->Embed(questions));
  const Stopwatch watch;
  INFERSCALE_ASSIGN(embedded.facts, embedder->Embed(facts));
  embedded.per_second = static_cast<double>(facts.size()) / watch.Ms() * 1000;
  return embedded;
}

// How near `one` is to `other`.
void Compare(const Embedded& one, const Embedded& other) {
  double sum = 0;
  float least = 1;
  for (size_t i = 0; i < one.facts.size(); ++i) {
    const float cosine = Dot(one.facts[i], other.facts[i]);
    sum += double{cosine};
    least = std::min(least, cosine);
  }
  double same = 0;
  size_t found = 0;
  for (size_t i = 0; i < one.questions.size(); ++i) {
    const auto mine = Nearest(one.facts, one.questions[i]);
    const auto theirs = Nearest(other.facts, other.questions[i]);
    std::vector<size_t> both;
    std::ranges::set_intersection(mine, theirs, std::back_inserter(both));
    same += static_cast<double>(both.size());
    found += mine.size();
  }
  fmt::print("  cosine mean {:.5f}, least {:.5f}; same of {}: {:.1f} %\n",
             sum / static_cast<double>(one.facts.size()), least, kNearest,
             100 * same / static_cast<double>(found));
}

int Main(int argc, char** argv) {
  const char* model = argc > 3 ? argv[3] : std::getenv("INFERSCALE_EMBED_MODEL");
  if (argc < 3 || model == nullptr) {
    fmt::print(stderr, "usage: bench_embed FACTS QUESTIONS [MODEL.gguf]\n");
    return 2;
  }
  const auto facts = Lines(argv[1]);
  const auto questions = Lines(argv[2]);
  if (facts.empty() || questions.empty()) {
    fmt::print(stderr, "bench_embed: no lines in {} or {}\n", argv[1], argv[2]);
    return 1;
  }
  Result<Embedded> reference;
  for (const auto& [name, bert] : {std::pair("libllama", BertArithmetic::kLibllama),
                                   std::pair("floats", BertArithmetic::kFloat),
                                   std::pair("fastest", BertArithmetic::kFastest)}) {
    auto embedded = EmbedAll(bert, model, facts, questions);
    if (!embedded) {
      fmt::print(stderr, "bench_embed: {}\n", embedded.error().message);
      return 1;
    }
    fmt::print("{:8} {:6.0f} facts/s\n", name, embedded->per_second);
    if (bert == BertArithmetic::kLibllama) {
      reference = std::move(embedded);
    } else {
      Compare(*embedded, *reference);
    }
  }
  return 0;
}

}  // namespace
}  // namespace inferscale

int main(int argc, char** argv) { return inferscale::Main(argc, argv); }
