#include "cli/ingest.h"
#include "cli/output.h"
#include "cli/verbs.h"

namespace inferscale {
namespace {

Result<int> Run(const Options& options) {
  INFERSCALE_ASSIGN(const auto app, OpenApplication(options.app, Need::kAnswer));
  bool interrupted = false;
  INFERSCALE_ASSIGN(const EncodeProgress done, EncodeAll(*app, &interrupted));
  INFERSCALE_ASSIGN(const uint64_t pending, app->PendingEpisodes());
  if (options.json()) {
    PrintJson({{"facts", done.facts_done},
               {"episodes", done.episodes_done},
               {"stored_tokens", done.stored_tokens},
               {"computed_tokens", done.computed_tokens},
               {"failed", done.failed},
               {"pending_episodes", pending},
               {"ms", Rounded(done.ms)}});
  } else if (done.episodes_done == 0 && done.failed == 0) {
    Print("Nothing to encode.\n");
  } else {
    Print("Encoded  " + DescribeEncoding(done) + "\n");
  }
  if (interrupted) {
    return Fail(Code::kCancelled, "interrupted; {} episodes are left. Run the same command again",
                pending);
  }
  if (done.failed > 0) {
    return Fail(Code::kTransient,
                "{} episodes could not be encoded; their facts are prefilled "
                "until a later try succeeds",
                done.failed);
  }
  return kExitOk;
}

}  // namespace

Verb EncodeVerb(CLI::App& root) {
  CLI::App* command = AddCommand(root, "encode", "Make the KV of all facts that have none yet",
                                 {"inferscale encode", "inferscale encode --window window(12)"});
  return {command, [](const Options& options) { return Run(options); }};
}

}  // namespace inferscale
