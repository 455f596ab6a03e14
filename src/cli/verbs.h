// One function for each verb; each adds its command line to `root`.
#ifndef INFERSCALE_CLI_VERBS_H_
#define INFERSCALE_CLI_VERBS_H_

#include "cli/command.h"

namespace inferscale {

Verb AddVerb(CLI::App& root);
Verb ImportVerb(CLI::App& root);
Verb ExportVerb(CLI::App& root);
Verb SearchVerb(CLI::App& root);
Verb ListVerb(CLI::App& root);
Verb GetVerb(CLI::App& root);
Verb UpdateVerb(CLI::App& root);
Verb DeleteVerb(CLI::App& root);
Verb ForgetVerb(CLI::App& root);
Verb BackupVerb(CLI::App& root);
Verb HistoryVerb(CLI::App& root);
Verb AskVerb(CLI::App& root);
Verb ChatVerb(CLI::App& root);
Verb EncodeVerb(CLI::App& root);
Verb StatsVerb(CLI::App& root);
Verb DoctorVerb(CLI::App& root);
Verb VerifyVerb(CLI::App& root);
Verb CompactVerb(CLI::App& root);
Verb BenchTtftVerb(CLI::App& root);
Verb BenchScoreVerb(CLI::App& root);  // after BenchTtftVerb
Verb DemoVerb(CLI::App& root);
Verb ServeVerb(CLI::App& root, Options* options);
Verb KeysVerb(CLI::App& root);
Verb QuotaVerb(CLI::App& root);
Verb McpVerb(CLI::App& root);

}  // namespace inferscale

#endif  // INFERSCALE_CLI_VERBS_H_
