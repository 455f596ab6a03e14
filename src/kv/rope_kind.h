// By itself, because device compilers read it too.
#ifndef INFERSCALE_KV_ROPE_KIND_H_
#define INFERSCALE_KV_ROPE_KIND_H_

#include <cstdint>

namespace inferscale {

// Which dims form a pair. kNone: a layer without positions (NoPE).
enum class RopeKind : uint8_t {
  kNone = 0,
  kNeox = 1,         // (x[i], x[i + rotary_dims / 2])
  kInterleaved = 2,  // (x[2i], x[2i + 1]); llama.cpp calls it NORM
};

}  // namespace inferscale

#endif  // INFERSCALE_KV_ROPE_KIND_H_
