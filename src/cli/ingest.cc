#include "cli/ingest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/clock.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "memory/extraction.h"

namespace inferscale {
namespace {

constexpr size_t kBatch = 64;

void Count(std::span<const AddResult> results, Ingested* out) {
  for (const AddResult& result : results) {
    ++(result.event == AddEvent::kAdded ? out->added : out->duplicates);
  }
}

// A batch is refused as a whole for one bad fact; then each is tried alone.
Status AddOneByOne(App& app, std::span<const Fact> batch, Ingested* out) {
  for (size_t i = 0; i < batch.size(); ++i) {
    auto result = app.Add(batch.subspan(i, 1));
    if (result) {
      Count(*result, out);
    } else if (result.error().code == Code::kInvalid) {
      out->refused.push_back(
          {Code::kInvalid, fmt::format("fact {}: {}", out->seen + i + 1, result.error().message)});
    } else {
      return tl::unexpected<Error>(result.error());
    }
  }
  return {};
}

Status AddBatch(App& app, std::span<const Fact> batch, Ingested* out) {
  auto results = app.Add(batch);
  if (!results && results.error().code == Code::kInvalid) {
    INFERSCALE_TRY(AddOneByOne(app, batch, out));
  } else if (!results) {
    return tl::unexpected<Error>(std::move(results).error());
  } else {
    Count(*results, out);
  }
  out->seen += batch.size();
  return {};
}

std::string FactsPerSecond(const Ingested& now) {
  return fmt::format("{:.0f} facts/s", static_cast<double>(now.seen) / now.ms * 1000);
}
std::string FactsAdded(const Ingested& now) { return fmt::format("{} facts", now.added); }

// `take` does the beginning of what is left, and counts it.
template <typename T, typename Take>
Result<Ingested> InSteps(std::span<const T> facts, const char* label,
                         std::string (*note)(const Ingested&), const Take& take) {
  Ingested out;
  const Stopwatch watch;
  Progress progress(label);
  while (out.seen < facts.size() && !Interrupted()) {
    INFERSCALE_TRY(take(facts.subspan(out.seen), &out));
    out.ms = watch.Ms();
    progress.Update(out.seen, facts.size(), note(out));
  }
  out.interrupted = out.seen < facts.size();
  out.ms = watch.Ms();
  return out;
}

}  // namespace

Result<std::string> ReadInput(const std::string& path) {
  const bool from_stdin = path == "-";
  std::error_code ignored;
  if (!from_stdin && std::filesystem::is_directory(path, ignored)) {
    return Fail(Code::kInvalid, "{} is a folder, not a file", path);
  }
  std::FILE* file = from_stdin ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    const int reason = errno;
    return Fail(reason == ENOENT ? Code::kNotFound : Code::kTransient, "{}: {}", path,
                std::strerror(reason));
  }
  std::string content;
  char buffer[1 << 16];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, file)) content.append(buffer, got);
  const bool failed = std::ferror(file) != 0;
  const int reason = errno;
  if (!from_stdin) std::fclose(file);
  if (Interrupted()) return Fail(Code::kCancelled, "interrupted while reading {}", path);
  if (failed) return Fail(Code::kTransient, "{}: {}", path, std::strerror(reason));
  return content;
}

Result<ParsedFacts> ParseFacts(std::string_view content, ImportFormat format,
                               const Fact& defaults) {
  ParsedFacts out;
  ImportSink sink;
  sink.fact = [&](Fact&& fact) -> Status {
    out.facts.push_back(std::move(fact));
    return {};
  };
  sink.bad = [&](const Error& error) { out.skipped.push_back(error); };
  sink.dropped = [&](std::string_view what, uint64_t count) {
    out.dropped[std::string(what)] += count;
  };
  INFERSCALE_TRY(ParseImport(content, format, defaults, sink));
  return out;
}

Result<Ingested> AddFacts(App& app, std::span<const Fact> facts) {
  return InSteps(facts, "Adding", FactsPerSecond, [&](std::span<const Fact> rest, Ingested* out) {
    return AddBatch(app, rest.first(std::min(kBatch, rest.size())), out);
  });
}

Result<Ingested> RestoreFacts(App& app, std::span<const FactWithHistory> facts) {
  const auto restore = [&](std::span<const FactWithHistory> rest, Ingested* out) -> Status {
    const auto batch = rest.first(std::min(kBatch, rest.size()));
    INFERSCALE_ASSIGN(const auto results, app.Restore(batch));
    Count(results, out);
    out->seen += batch.size();
    return {};
  };
  return InSteps(facts, "Adding", FactsPerSecond, restore);
}

Result<Ingested> InferFacts(App& app, std::span<const Fact> messages) {
  // No more than one prompt takes, so that progress is seen and Ctrl-C heard.
  const auto infer = [&](std::span<const Fact> rest, Ingested* out) -> Status {
    const auto same = [&](const Fact& fact) { return fact.scope == rest.front().scope; };
    const auto end = std::find_if_not(rest.begin(), rest.end(), same);
    rest = rest.first(std::min(static_cast<size_t>(end - rest.begin()), kMessagesTogether));
    INFERSCALE_ASSIGN(const std::vector<InferredFact> inferred, app.AddInferred(rest));
    for (const InferredFact& one : inferred) {
      out->added += one.event == InferEvent::kAdded ? 1 : 0;
      out->updated += one.event == InferEvent::kUpdated ? 1 : 0;
      out->duplicates += one.event == InferEvent::kDuplicate ? 1 : 0;
    }
    out->seen += rest.size();
    return {};
  };
  return InSteps(messages, "Reading", FactsAdded, infer);
}

Result<EncodeProgress> EncodeAll(App& app, bool* interrupted) {
  Progress progress("Encoding");
  *interrupted = false;
  if (const ModelInfo& model = app.engine().info(); !model.injection) {
    Say(fmt::format("{} takes no KV, so facts are prefilled: {}", model.name,
                    model.self_test.summary));
    return EncodeProgress{};
  }
  const InterruptStop stop;
  const auto on_progress = [&](const EncodeProgress& now) {
    const double per_second = static_cast<double>(now.computed_tokens) / now.ms * 1000;
    progress.Update(now.episodes_done, now.episodes_total,
                    now.computed_tokens > 0 ? fmt::format("{:.0f} tokens/s", per_second) : "");
    return !Interrupted();
  };
  auto done = app.EncodePending(on_progress, stop.token());
  *interrupted = done && Interrupted() && done->episodes_done < done->episodes_total;
  return done;
}

std::string DescribeEncoding(const EncodeProgress& done) {
  std::string out = fmt::format("{} facts in {} episodes, {} tokens stored, {} computed, {}",
                                FormatCount(done.facts_done), FormatCount(done.episodes_done),
                                FormatCount(done.stored_tokens), FormatCount(done.computed_tokens),
                                FormatMs(done.ms));
  if (done.failed > 0) out += fmt::format("; {} failed and will be tried again", done.failed);
  return out;
}

}  // namespace inferscale
