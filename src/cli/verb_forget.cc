#include <fmt/format.h>

#include <boost/json/array.hpp>

#include "cli/output.h"
#include "cli/verbs.h"

namespace inferscale {
namespace {

boost::json::object ProofToJson(const ErasureProof& proof) {
  boost::json::array found_in;
  for (const std::string& file : proof.found_in) found_in.emplace_back(file);
  return {{"texts", proof.texts}, {"short_texts", proof.short_texts}, {"vectors", proof.vectors},
          {"keys", proof.keys},   {"shared", proof.shared},           {"files", proof.files},
          {"bytes", proof.bytes}, {"found_in", std::move(found_in)}};
}

std::string DescribeProof(const ErasureProof& proof) {
  std::string out = fmt::format(
      "Searched  {} files, {}, every byte\n"
      "For       {} texts, {} vectors and {} keys of KV records\n",
      FormatCount(proof.files), FormatBytes(proof.bytes), FormatCount(proof.texts),
      FormatCount(proof.vectors), FormatCount(proof.keys));
  if (proof.short_texts > 0) {
    out += fmt::format("Not for   {} texts that are too short to be told from chance\n",
                       FormatCount(proof.short_texts));
  }
  if (proof.shared > 0) {
    out += fmt::format("Left out  {} pieces that facts of others say too\n",
                       FormatCount(proof.shared));
  }
  if (proof.found_in.empty()) return out + "Found     nothing\n";
  for (const std::string& file : proof.found_in) out += "FOUND IN  " + file + "\n";
  return out;
}

Result<int> Run(bool verify, const Options& options) {
  if (!options.typed.contains("user") || options.scope.user == "*") {
    return Fail(Code::kInvalid, "forget whom? Give one --user on the command line");
  }
  const Scope scope{options.scope.tenant, options.scope.user, "", ""};
  INFERSCALE_ASSIGN(const auto app, OpenApplication(options.app, Need::kFacts));
  INFERSCALE_ASSIGN(const ForgetReport report, app->Forget(scope, verify));
  const CompactReport& files = report.compacted.files;
  const bool left = files.segments_busy > 0 || report.erased.kv_left;
  const bool gone = !left && (!report.proof || report.proof->found_in.empty());
  if (options.json()) {
    boost::json::object out = {{"facts", report.erased.facts},
                               {"kv_records", report.erased.kv_records},
                               {"bytes_freed", files.bytes_freed},
                               {"segments_busy", files.segments_busy},
                               {"gone", gone},
                               {"proof", nullptr}};
    if (report.proof) out["proof"] = ProofToJson(*report.proof);
    PrintJson(out);
  } else {
    Print(fmt::format("Deleted   {} facts: text, history, vectors and {} records of KV\n",
                      FormatCount(report.erased.facts), FormatCount(report.erased.kv_records)));
    if (report.proof) Print(DescribeProof(*report.proof));
  }
  if (gone) return kExitOk;
  if (left) {
    Say("another process writes to a file of KV, which may still hold erased records, and does not "
        "let it go: stop it, or run this again when it has ended");
  }
  return kExitFailed;
}

}  // namespace

Verb ForgetVerb(CLI::App& root) {
  auto verify = std::make_shared<bool>(false);
  CLI::App* command = AddCommand(
      root, "forget",
      "Delete all of a user's facts at once and rewrite the files, so that their "
      "bytes are gone",
      {"inferscale forget --user ana --verify", "inferscale forget --user ana --verify -o json"});
  command->add_flag("--verify", *verify,
                    "Then read every file of the data directory for what was deleted, and say what "
                    "was searched and found; exit code 1 if anything was");
  return {command, [verify](const Options& options) { return Run(*verify, options); }};
}

}  // namespace inferscale
