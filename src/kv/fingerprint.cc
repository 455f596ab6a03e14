#include "kv/fingerprint.h"

namespace inferscale {

Fingerprint MakeFingerprint(const FingerprintParts& parts) {
  const KvShape& shape = parts.shape;
  Hasher hasher;
  // The number changes when the meaning of stored KV does.
  hasher.Add("inferscale fingerprint").Add(uint64_t{1});
  hasher.Add(parts.weights).Add(parts.adapter).Add(parts.engine).Add(parts.chat_template);
  hasher.Add(uint64_t{shape.layers}).Add(uint64_t{shape.kv_heads});
  hasher.Add(uint64_t{shape.k_dim}).Add(uint64_t{shape.v_dim});
  hasher.Add(uint64_t{static_cast<uint8_t>(shape.dtype)});
  hasher.Add(parts.ropes.Hash());
  return hasher.Digest();
}

}  // namespace inferscale
