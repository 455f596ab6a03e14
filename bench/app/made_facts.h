// Facts in plain English for measuring: dated turns of 25 to 35 tokens of a BERT vocabulary with
// date and speaker, all different.
#ifndef INFERSCALE_BENCH_APP_MADE_FACTS_H_
#define INFERSCALE_BENCH_APP_MADE_FACTS_H_

#include <fmt/format.h>

#include <array>
#include <random>
#include <string>

#include "memory/fact.h"

namespace inferscale {

class MadeFacts {
 public:
  // The next fact; a user has 5,000, a run 40.
  Fact Next() {
    Fact fact;
    fact.scope.user = fmt::format("user{}", number_ / 5000);
    fact.scope.run = fmt::format("run{}", number_ / 40);
    fact.speaker = Pick(kPeople);
    fact.when_ms = int64_t{1700000000000} + number_ * 3'600'000;
    fact.text = fmt::format("I {} a {} {} in {} for {} euros {}.", Pick(kVerbs), Pick(kKinds),
                            Pick(kThings), Pick(kTowns), 20 + number_, Pick(kEnds));
    ++number_;
    return fact;
  }

 private:
  static constexpr std::array kPeople = {"Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace"};
  static constexpr std::array kVerbs = {"bought", "sold", "repaired", "borrowed", "found", "lost"};
  static constexpr std::array kKinds = {"small", "green", "wooden", "heavy", "broken", "quiet"};
  static constexpr std::array kThings = {"bicycle", "camera", "table", "lamp",   "jacket",
                                         "piano",   "clock",  "boat",  "guitar", "tent"};
  static constexpr std::array kTowns = {"London", "Paris",   "Berlin", "Madrid",
                                        "Boston", "Chicago", "Vienna", "Dublin"};
  static constexpr std::array kEnds = {
      "and my brother helped me carry it home", "because our neighbour had told me about it",
      "after the long meeting with my manager", "although the weather was cold and wet",
      "since our daughter had asked for it all summer"};

  template <size_t kCount>
  const char* Pick(const std::array<const char*, kCount>& words) {
    return words[random_() % kCount];
  }

  std::mt19937 random_{1};
  int64_t number_ = 0;
};

}  // namespace inferscale

#endif  // INFERSCALE_BENCH_APP_MADE_FACTS_H_
