#include "cli/verdict_view.h"

#include <fmt/format.h>

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
      {"least_facts", verdict.least_facts},
      {"questions", verdict.questions},
      {"positions", verdict.positions},
      {"at", FormatTime(verdict.at_ms)}};
}

std::string GateTable(std::span<const GateMeasurement> measured) {
  Table table({{"FACTS", Align::kRight},
               {"KL", Align::kRight},
               {"LIMIT", Align::kRight},
               {"SAME TOP TOKEN", Align::kRight},
               {"LIMIT", Align::kRight},
               {"VERDICT"}});
  for (const auto& [facts, verdict] : measured) {
    table.Add({std::to_string(facts), KlText(verdict.kl),
               verdict.kl ? fmt::format("{:.4f}", GateKlLimit(verdict)) : "-",
               Percent(verdict.agreement), Percent(GateAgreementLimit(verdict)),
               verdict.passed ? "passed" : "failed"});
  }
  return table.ToString(0);
}

std::string DescribeVerdict(const std::optional<GateVerdict>& verdict) {
  if (!verdict) return "not measured yet; run inferscale verify";
  const std::string kl =
      verdict->kl ? fmt::format("KL {:.4f} (limit {:.4f}), ", *verdict->kl, GateKlLimit(*verdict))
                  : "";
  const std::string from =
      verdict->least_facts > 0
          ? fmt::format(" for prompts of {} facts and more", verdict->least_facts)
          : "";
  return fmt::format("{} on {}{}: {}same top token {} (limit {})",
                     verdict->passed ? "passed" : "failed", RenderDate(verdict->at_ms), from, kl,
                     Percent(verdict->agreement), Percent(GateAgreementLimit(*verdict)));
}

}  // namespace inferscale
