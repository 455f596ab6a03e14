// Time to the first token, with memory as text and as KV: both arms interleaved in one run over the
// same questions and the same composition, search and embedding included in both.
#ifndef INFERSCALE_CLI_TTFT_H_
#define INFERSCALE_CLI_TTFT_H_

#include <boost/json/array.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "app/app.h"
#include "base/result.h"
#include "cli/output.h"

namespace inferscale {

struct TtftCase {
  uint32_t facts = 0;  // 0: no memory
  uint32_t plain = 0;  // of them, how many are prefilled in the KV arm too
};

struct TtftPlan {
  Scope scope;
  std::vector<std::string> questions;
  std::vector<TtftCase> cases;
  uint32_t repeat = 5;
};

// Medians over the repeats.
struct TtftRow {
  TtftCase asked;
  uint32_t facts = 0;      // in the composition
  uint32_t tokens = 0;     // of the prompt
  uint32_t injected = 0;   // in the KV arm
  uint32_t prefilled = 0;  // in the KV arm
  double text_ms = 0;
  double kv_ms = 0;
  AskTimes kv;  // the KV arm, step by step

  double Ratio() const { return kv_ms > 0 ? text_ms / kv_ms : 0; }
};

// Facts must be added and encoded. Questions whose composition has exactly the facts asked for are
// preferred. kInvalid for a plan without questions,
// cases or repeats, kInternal if the arms had different prompts.
Result<std::vector<TtftRow>> MeasureTtft(App& app, const TtftPlan& plan);

double Median(std::vector<double> values);  // 0 if empty

boost::json::array TtftToJson(const std::vector<TtftRow>& rows);
Table TtftTable(const std::vector<TtftRow>& rows);
std::string TtftSvg(const std::vector<TtftRow>& rows, const std::string& subtitle);

}  // namespace inferscale

#endif  // INFERSCALE_CLI_TTFT_H_
