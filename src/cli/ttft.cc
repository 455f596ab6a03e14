#include "cli/ttft.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "cli/answer_view.h"
#include "cli/interrupt.h"
#include "cli/line_plot.h"
#include "cli/progress.h"

namespace inferscale {
namespace {

AskRequest MakeRequest(const TtftPlan& plan, const TtftCase& c, const std::string& question,
                       MemoryMode mode) {
  AskRequest request;
  request.scope = plan.scope;
  request.question = question;
  request.mode = c.facts == 0 ? MemoryMode::kNone : mode;
  request.compose.facts = c.facts;
  request.compose.plain_last = c.plain;
  request.sampling.max_tokens = 1;
  return request;
}

// The plan's questions for one case, those with the right number of facts first. Composing also
// brings the facts' KV into memory, so that every case is measured warm.
Result<std::vector<std::string>> ChooseQuestions(App& app, const TtftPlan& plan,
                                                 const TtftCase& c) {
  std::vector<std::pair<size_t, std::string>> by_distance;
  size_t exact = 0;
  for (const std::string& question : plan.questions) {
    if (exact == plan.repeat) break;
    std::vector<UsedFact> used;
    INFERSCALE_TRY(
        app.ComposePrompt(MakeRequest(plan, c, question, MemoryMode::kKv), &used, nullptr));
    const size_t distance =
        std::max<size_t>(used.size(), c.facts) - std::min<size_t>(used.size(), c.facts);
    exact += distance == 0 ? 1 : 0;
    by_distance.emplace_back(distance, question);
  }
  std::stable_sort(by_distance.begin(), by_distance.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> questions;
  for (size_t i = 0; i < plan.repeat; ++i) {
    questions.push_back(by_distance[i % by_distance.size()].second);
  }
  return questions;
}

struct Samples {
  std::vector<Answer> text;
  std::vector<Answer> kv;
};

template <typename Get>
double MedianOf(const std::vector<Answer>& answers, const Get& get) {
  std::vector<double> values;
  values.reserve(answers.size());
  for (const Answer& answer : answers) values.push_back(static_cast<double>(get(answer)));
  return Median(std::move(values));
}

TtftRow MakeRow(const TtftCase& c, const Samples& samples) {
  TtftRow row;
  row.asked = c;
  const auto count = [&](const auto& get) {
    return static_cast<uint32_t>(MedianOf(samples.kv, get));
  };
  row.facts = count([](const Answer& a) { return a.facts.size(); });
  row.tokens = count([](const Answer& a) { return a.stats.prompt_tokens; });
  row.injected = count([](const Answer& a) { return a.stats.injected_tokens; });
  row.prefilled = count([](const Answer& a) { return a.stats.prefilled_tokens; });
  row.text_ms = MedianOf(samples.text, [](const Answer& a) { return a.times.first_token_ms; });
  row.kv_ms = MedianOf(samples.kv, [](const Answer& a) { return a.times.first_token_ms; });
  for (double AskTimes::*step : {&AskTimes::embed_ms, &AskTimes::search_ms, &AskTimes::compose_ms,
                                 &AskTimes::load_ms, &AskTimes::inject_ms, &AskTimes::prefill_ms,
                                 &AskTimes::first_token_ms, &AskTimes::total_ms}) {
    row.kv.*step = MedianOf(samples.kv, [&](const Answer& a) { return a.times.*step; });
  }
  return row;
}

Status MeasureOnce(App& app, const TtftPlan& plan, const TtftCase& c, const std::string& question,
                   bool kv_first, Samples* samples) {
  for (const bool first : {true, false}) {
    const bool kv = first == kv_first;
    const MemoryMode mode = kv ? MemoryMode::kKv : MemoryMode::kText;
    INFERSCALE_ASSIGN(Answer answer, app.Ask(MakeRequest(plan, c, question, mode), nullptr));
    (kv ? samples->kv : samples->text).push_back(std::move(answer));
  }
  if (samples->kv.back().stats.prompt_tokens != samples->text.back().stats.prompt_tokens) {
    return Fail(Code::kInternal, "text and KV had prompts of {} and {} tokens",
                samples->text.back().stats.prompt_tokens, samples->kv.back().stats.prompt_tokens);
  }
  return {};
}

}  // namespace

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Result<std::vector<TtftRow>> MeasureTtft(App& app, const TtftPlan& plan) {
  if (plan.questions.empty() || plan.cases.empty() || plan.repeat == 0) {
    return Fail(Code::kInvalid, "nothing to measure");
  }
  std::vector<std::vector<std::string>> questions;
  std::vector<Samples> samples(plan.cases.size());
  for (const TtftCase& c : plan.cases) {
    INFERSCALE_ASSIGN(questions.emplace_back(), ChooseQuestions(app, plan, c));
  }
  // The shortest prompt with facts runs all the code that the longest does.
  size_t shortest = 0;
  for (size_t i = 1; i < plan.cases.size(); ++i) {
    const uint32_t facts = plan.cases[i].facts;
    const uint32_t best = plan.cases[shortest].facts;
    if (facts > 0 && (best == 0 || facts < best)) shortest = i;
  }
  Samples warm_up;
  INFERSCALE_TRY(
      MeasureOnce(app, plan, plan.cases[shortest], questions[shortest].front(), false, &warm_up));
  Progress progress("Measuring");
  const size_t total = plan.cases.size() * plan.repeat;
  for (size_t done = 0; done < total; ++done) {
    const size_t i = done % plan.cases.size();
    const size_t round = done / plan.cases.size();
    if (Interrupted()) return Fail(Code::kCancelled, "interrupted");
    INFERSCALE_TRY(
        MeasureOnce(app, plan, plan.cases[i], questions[i][round], round % 2 == 1, &samples[i]));
    progress.Update(done + 1, total, fmt::format("{} facts", plan.cases[i].facts));
  }
  std::vector<TtftRow> rows;
  for (size_t i = 0; i < samples.size(); ++i) rows.push_back(MakeRow(plan.cases[i], samples[i]));
  return rows;
}

boost::json::array TtftToJson(const std::vector<TtftRow>& rows) {
  boost::json::array out;
  for (const TtftRow& row : rows) {
    out.push_back({{"facts", row.facts},
                   {"asked", row.asked.facts},
                   {"plain", row.asked.plain},
                   {"tokens", row.tokens},
                   {"text_ms", Rounded(row.text_ms)},
                   {"kv_ms", Rounded(row.kv_ms)},
                   {"ratio", Rounded(row.Ratio())},
                   {"injected", row.injected},
                   {"prefilled", row.prefilled},
                   {"kv", TimesToJson(row.kv)}});
  }
  return out;
}

Table TtftTable(const std::vector<TtftRow>& rows) {
  Table table({{"FACTS", Align::kRight},
               {"PLAIN", Align::kRight},
               {"TOKENS", Align::kRight},
               {"INJECTED", Align::kRight},
               {"PREFILLED", Align::kRight},
               {"TEXT", Align::kRight},
               {"KV", Align::kRight},
               {"RATIO", Align::kRight},
               {"KV = EMBED", Align::kRight},
               {"SEARCH", Align::kRight},
               {"COMPOSE", Align::kRight},
               {"LOAD", Align::kRight},
               {"INJECT", Align::kRight},
               {"PREFILL", Align::kRight}});
  for (const TtftRow& row : rows) {
    const auto ms = [](double value) { return fmt::format("{:.1f}", value); };
    table.Add({FormatCount(row.facts), FormatCount(row.asked.plain), FormatCount(row.tokens),
               FormatCount(row.injected), FormatCount(row.prefilled), FormatMs(row.text_ms),
               FormatMs(row.kv_ms), fmt::format("{:.1f}x", row.Ratio()), ms(row.kv.embed_ms),
               ms(row.kv.search_ms), ms(row.kv.compose_ms), ms(row.kv.load_ms),
               ms(row.kv.inject_ms), ms(row.kv.prefill_ms)});
  }
  return table;
}

std::string TtftSvg(const std::vector<TtftRow>& rows, const std::string& subtitle) {
  const bool slow = std::any_of(rows.begin(), rows.end(),
                                [](const TtftRow& row) { return row.text_ms >= 10000; });
  const double unit = slow ? 1000 : 1;
  LinePlot plot{"Time to the first token",
                subtitle,
                "facts in the prompt",
                slow ? "seconds" : "milliseconds",
                {{"memory as text", {}}, {"memory as KV", {}}}};
  for (const TtftRow& row : rows) {
    plot.lines[0].points.emplace_back(row.facts, row.text_ms / unit);
    plot.lines[1].points.emplace_back(row.facts, row.kv_ms / unit);
  }
  return RenderSvg(plot);
}

}  // namespace inferscale
