// What all users of libllama in a process share: its start and its log.
#ifndef INFERSCALE_BASE_LLAMA_RUNTIME_H_
#define INFERSCALE_BASE_LLAMA_RUNTIME_H_

#include <string>

namespace inferscale {

// Starts libllama and sends its log to spdlog: errors as info (whoever calls libllama turns
// them into a Result), all else as debug. Call it before any other function of libllama; more calls
// do nothing. Thread-safe.
void InitLlamaRuntime();

// The first error that libllama logged on this thread since the last call, on one line; empty if
// there was none. So that a failed load can say why. Call it before as well, to forget older ones.
std::string TakeLlamaError();

}  // namespace inferscale

#endif  // INFERSCALE_BASE_LLAMA_RUNTIME_H_
