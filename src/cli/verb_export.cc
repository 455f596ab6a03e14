#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/sqlite.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "memory/export.h"

namespace inferscale {
namespace {

using Take = std::function<Status(const std::string&)>;

// A user's facts as they are at one moment, in their order.
Result<std::vector<FactWithHistory>> FactsOf(FactStore& store, const Scope& scope,
                                             const std::string& user) {
  std::vector<FactWithHistory> facts;
  const auto wanted = [&](const Fact& fact) {
    return (scope.agent.empty() || scope.agent == fact.scope.agent) &&
           (scope.run.empty() || scope.run == fact.scope.run);
  };
  INFERSCALE_TRY(
      store.ForEach(scope.tenant, user, Hash128{}, [&](Fact&& fact, std::span<const float>) {
        if (wanted(fact)) facts.push_back({std::move(fact), {}});
      }));
  for (FactWithHistory& fact : facts) {
    auto history = store.History(scope.tenant, fact.fact.id);
    if (!history && history.error().code != Code::kNotFound) {
      return tl::unexpected(history.error());
    }
    if (history) fact.history = *std::move(history);
  }
  return facts;
}

Result<std::pair<uint64_t, uint64_t>> WriteAll(FactStore& store, const Scope& scope,
                                               const Take& take) {
  ExportWriter writer;
  INFERSCALE_TRY(take(writer.Begin()));
  INFERSCALE_ASSIGN(const std::vector<std::string> users, store.Users(scope));
  for (const std::string& user : users) {
    if (Interrupted()) return Fail(Code::kCancelled, "interrupted; the export is not complete");
    INFERSCALE_ASSIGN(const auto facts, FactsOf(store, scope, user));
    for (const FactWithHistory& fact : facts) INFERSCALE_TRY(take(writer.Line(fact)));
  }
  INFERSCALE_TRY(take(writer.End()));
  return std::pair(writer.facts(), uint64_t{users.size()});
}

// Under another name until it is whole, and for its owner only.
class NewFile {
 public:
  explicit NewFile(std::string path) : path_(std::move(path)), partial_(path_ + ".partial") {}
  ~NewFile() {
    if (file_ != nullptr) std::fclose(file_);
    std::error_code ignored;
    if (!done_) std::filesystem::remove(partial_, ignored);
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  Status Open() {
    std::error_code ignored;
    std::filesystem::remove(partial_, ignored);
    INFERSCALE_TRY(CreatePrivateFile(partial_));
    file_ = std::fopen(partial_.c_str(), "wb");
    return file_ == nullptr ? Failed() : Status{};
  }
  Status Write(const std::string& line) {
    return std::fwrite(line.data(), 1, line.size(), file_) == line.size() ? Status{} : Failed();
  }
  Status Close() {
    if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0) return Failed();
    const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
    done_ = closed && std::rename(partial_.c_str(), path_.c_str()) == 0;
    return done_ ? Status{} : Failed();
  }

 private:
  Status Failed() const { return Fail(Code::kTransient, "{}: {}", path_, std::strerror(errno)); }

  const std::string path_;
  const std::string partial_;
  std::FILE* file_ = nullptr;
  bool done_ = false;
};

Result<int> Run(const std::string& file, const Options& options) {
  // All of the tenant, unless the command line narrows it.
  Scope scope{options.scope.tenant, "", "", ""};
  if (options.typed.contains("user")) scope.user = options.QueryScope().user;
  if (options.typed.contains("agent")) scope.agent = options.scope.agent;
  if (options.typed.contains("run")) scope.run = options.scope.run;
  INFERSCALE_ASSIGN(const auto app, OpenApplication(options.app, Need::kFacts));
  if (file == "-") {
    INFERSCALE_ASSIGN(const auto counts, WriteAll(app->facts(), scope, [](const std::string& line) {
                        Print(line);
                        return Status{};
                      }));
    if (!options.json()) Say(fmt::format("{} facts exported", FormatCount(counts.first)));
    return kExitOk;
  }
  NewFile out(file);
  INFERSCALE_TRY(out.Open());
  INFERSCALE_ASSIGN(const auto counts, WriteAll(app->facts(), scope, [&](const std::string& line) {
                      return out.Write(line);
                    }));
  INFERSCALE_TRY(out.Close());
  if (options.json()) {
    PrintJson({{"facts", counts.first}, {"users", counts.second}, {"file", file}});
  } else {
    Print(fmt::format("{} facts of {} users in {}\n", FormatCount(counts.first),
                      FormatCount(counts.second), file));
  }
  return kExitOk;
}

}  // namespace

Verb ExportVerb(CLI::App& root) {
  auto file = std::make_shared<std::string>("-");
  CLI::App* command = AddCommand(
      root, "export",
      "Write facts as checksummed lines of JSON: all of the tenant, or those of the scope typed "
      "here",
      {"inferscale export facts.jsonl", "inferscale export --user ana > ana.jsonl",
       "inferscale export | inferscale import - --data-dir elsewhere"});
  command->add_option("FILE", *file, "Where to; - is standard output")->capture_default_str();
  return {command, [file](const Options& options) { return Run(*file, options); }};
}

}  // namespace inferscale
