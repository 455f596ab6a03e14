// The flags of verbs that generate.
#ifndef INFERSCALE_CLI_SAMPLING_FLAGS_H_
#define INFERSCALE_CLI_SAMPLING_FLAGS_H_

#include <CLI/App.hpp>

#include "app/app.h"

namespace inferscale {

void AddSamplingFlags(CLI::App* command, Sampling* sampling);
void AddModeFlag(CLI::App* command, MemoryMode* mode);

}  // namespace inferscale

#endif  // INFERSCALE_CLI_SAMPLING_FLAGS_H_
