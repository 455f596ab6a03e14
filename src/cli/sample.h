// Facts and questions to measure with: the sample conversation, where it can be found, and made-up
// facts, of which there are as many as one wants.
#ifndef INFERSCALE_CLI_SAMPLE_H_
#define INFERSCALE_CLI_SAMPLE_H_

#include <string>
#include <vector>

#include "base/result.h"
#include "memory/fact.h"

namespace inferscale {

struct SampleQuestion {
  std::string question;
  std::string answer;
  bool demo = false;
};

struct Sample {
  std::vector<Fact> facts;
  std::vector<SampleQuestion> questions;
};

// The folder of the sample conversation: examples/sample here or beside the program's folder, or
// where an installation has it. Empty if there is none.
std::string FindSample();
// Reads conversation.jsonl and questions.jsonl; every fact gets `scope`, but for its run.
Result<Sample> ReadSample(const std::string& folder, const Scope& scope);

// Made-up dated facts of 25 to 35 tokens, no two alike, and questions about them. The same numbers
// give the same facts, always.
std::vector<Fact> MakeFacts(size_t count, const Scope& scope);
std::vector<std::string> MakeQuestions(size_t count);

}  // namespace inferscale

#endif  // INFERSCALE_CLI_SAMPLE_H_
