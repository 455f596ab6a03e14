// The quality gate: is injected KV as near to full prefill as a reader of prompts would accept, for
// this model, as it is quantised, with these settings? Measured once, on a fixed set of facts, and
// kept (FactStore::GetVerdict); MemoryMode::kAuto heeds it.
#ifndef INFERSCALE_APP_GATE_H_
#define INFERSCALE_APP_GATE_H_

#include <array>
#include <cstddef>
#include <functional>
#include <stop_token>
#include <vector>

#include "app/app.h"

namespace inferscale {

// What KV may cost at most, by what another order of the same facts costs under full prefill, which
// no reader of a prompt would call a loss. docs/quality.md has the measurements behind the numbers.
inline constexpr double kGateKlOfNoise = 1.0;         // the mean KL, as a share of the noise's
inline constexpr double kGateAgreementMargin = 0.05;  // same top token, below the noise's
// Facts in a prompt: the first that the options allow, and while KV passes the next ones.
inline constexpr std::array<uint32_t, 3> kGateFacts = {20, 15, 10};

double GateKlLimit(const GateVerdict& verdict);
double GateAgreementLimit(const GateVerdict& verdict);
// Whether the numbers keep within the limits; without KL only the agreement counts.
bool KeepsLimits(const GateVerdict& verdict);

// Called before every question; false stops. `total` is what it comes to if KV passes throughout.
using OnGateProgress = std::function<bool(size_t done, size_t total)>;

struct GateMeasurement {
  uint32_t facts = 0;  // at most, in a prompt
  GateVerdict verdict;
};

// Remembers the fixed set in `app` under a tenant of its own, encodes it (and whatever else is
// pending there), measures, and deletes it. Both arms and the noise are compared with full prefill
// position by position along full prefill's own greedy answer. An engine without logits is asked
// for one token at each position, and there is no KL. The first is the verdict, with least_facts;
// the others are of fewer facts. kUnsupported if the model takes no KV, kCancelled if told to stop.
Result<std::vector<GateMeasurement>> RunGate(App& app, const OnGateProgress& on_progress,
                                             const std::stop_token& stop);

}  // namespace inferscale

#endif  // INFERSCALE_APP_GATE_H_
