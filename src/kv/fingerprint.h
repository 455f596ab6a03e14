// A hash of everything that a model's KV depends on. KV is used only under the fingerprint that it
// was made for; a different quantisation, template or RoPE setting is a different fingerprint.
#ifndef INFERSCALE_KV_FINGERPRINT_H_
#define INFERSCALE_KV_FINGERPRINT_H_

#include <string>

#include "base/hash.h"
#include "kv/rope.h"
#include "kv/shape.h"

namespace inferscale {

struct FingerprintParts {
  Hash128 weights;        // of the weights file, its tokenizer and its metadata included
  std::string adapter;    // LoRA or empty
  std::string engine;     // "llama", with the version of its numerics when those change
  Hash128 chat_template;  // of the strings between which facts stand
  KvShape shape;
  LayerRopes ropes;
};

using Fingerprint = Hash128;
Fingerprint MakeFingerprint(const FingerprintParts& parts);

}  // namespace inferscale

#endif  // INFERSCALE_KV_FINGERPRINT_H_
