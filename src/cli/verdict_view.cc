#include "cli/verdict_view.h"

#include <fmt/format.h>

#include "app/gate.h"
#include "cli/output.h"

namespace inferscale {
namespace {

boost::json::value MaybeNumber(const std::optional<double>& value) {
  return value ? boost::json::value(*value) : boost::json::value(nullptr);
}

std::string KlText(const std::optional<double>& kl) {
  return kl ? fmt::format("{:.4f}", *kl) : "-";
}

std::string Percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace

boost::json::object VerdictToJson(const GateVerdict& verdict) {
  return {
      {"passed", verdict.passed},
      {"kl", MaybeNumber(verdict.kl)},
      {"noise_kl", MaybeNumber(verdict.noise_kl)},
      {"kl_limit", MaybeNumber(verdict.kl ? std::optional(GateKlLimit(verdict)) : std::nullopt)},
      {"agreement", verdict.agreement},
      {"noise_agreement", verdict.noise_agreement},
      {"agreement_limit", GateAgreementLimit(verdict)},
      {"injected", verdict.injected},
      {"questions", verdict.questions},
      {"positions", verdict.positions},
      {"at", FormatTime(verdict.at_ms)}};
}

std::string VerdictTable(const GateVerdict& verdict) {
  Table table({{"AGAINST FULL PREFILL"},
               {"KL, NATS A TOKEN", Align::kRight},
               {"SAME TOP TOKEN", Align::kRight}});
  table.Add({"injected KV", KlText(verdict.kl), Percent(verdict.agreement)});
  table.Add({"order noise: facts shuffled, computed", KlText(verdict.noise_kl),
             Percent(verdict.noise_agreement)});
  table.Add({"limit for injected KV",
             verdict.kl ? fmt::format("<= {:.4f}", GateKlLimit(verdict)) : "-",
             ">= " + Percent(GateAgreementLimit(verdict))});
  return table.ToString(0);
}

std::string DescribeVerdict(const std::optional<GateVerdict>& verdict) {
  if (!verdict) return "not measured yet; run inferscale verify";
  const std::string kl =
      verdict->kl ? fmt::format("KL {:.4f} (limit {:.4f}), ", *verdict->kl, GateKlLimit(*verdict))
                  : "";
  return fmt::format("{} on {}: {}same top token {} (limit {})",
                     verdict->passed ? "passed" : "failed", RenderDate(verdict->at_ms), kl,
                     Percent(verdict->agreement), Percent(GateAgreementLimit(*verdict)));
}

}  // namespace inferscale
