#include "cli/sampling_flags.h"

#include <CLI/CLI.hpp>
#include <map>

namespace inferscale {

void AddSamplingFlags(CLI::App* command, Sampling* sampling) {
  command->add_option("--max-tokens", sampling->max_tokens, "Longest answer")
      ->check(CLI::Range(uint32_t{1}, uint32_t{1} << 20))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--temperature", sampling->temperature, "0: always the most likely token")
      ->check(CLI::Range(0.0, 100.0))
      ->type_name("X")
      ->default_str("0");
  command->add_option("--seed", sampling->seed, "Of the random choices")->type_name("N");
}

void AddModeFlag(CLI::App* command, MemoryMode* mode) {
  const std::map<std::string, MemoryMode> modes = {{"auto", MemoryMode::kAuto},
                                                   {"kv", MemoryMode::kKv},
                                                   {"text", MemoryMode::kText},
                                                   {"none", MemoryMode::kNone}};
  command
      ->add_option(
          "--mode", *mode,
          "Memory as kv (injected), as text (the same prompt, prefilled), none, or auto: kv "
          "unless there are few facts (--auto-facts) or inferscale verify has failed it")
      ->transform(CLI::CheckedTransformer(modes))
      ->type_name("MODE")
      ->default_str("auto");
}

}  // namespace inferscale
