// How a model's records lie in the store: as the engine makes them, or quantised. Everything that
// depends on the choice is here: the dtype, the fingerprint that records are stored under, and the
// scales of the keys.
#ifndef INFERSCALE_APP_RECORD_CODEC_H_
#define INFERSCALE_APP_RECORD_CODEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/app.h"
#include "kv/key_scales.h"

namespace inferscale {

class RecordCodec {
 public:
  // For KvCodec::kNone no file is touched. Else the key scales of the model are read from `dir`, or
  // made and left there: the model encodes a fixed text once, some seconds. A damaged file counts
  // as none; what was stored under scales that are gone is under a fingerprint that is gone, and is
  // encoded again.
  static Result<RecordCodec> Open(KvCodec codec, Engine& engine, const std::string& dir);

  const Fingerprint& fingerprint() const { return fingerprint_; }
  const KvShape& shape() const { return shape_; }

  // An encoded record as the store takes it. Adds elements of keys beyond the scales to `clamped`.
  Result<std::vector<std::byte>> Pack(EncodedRecord record, uint64_t& clamped) const;
  // A record of the store as an engine takes it. The view must not outlive this.
  FactKvView View(FactKvView stored) const;

 private:
  explicit RecordCodec(const ModelInfo& model)
      : model_shape_(model.shape), shape_(model.shape), fingerprint_(model.fingerprint) {}

  KvShape model_shape_;
  KvShape shape_;
  Fingerprint fingerprint_;
  std::vector<float> key_scales_;
};

}  // namespace inferscale

#endif  // INFERSCALE_APP_RECORD_CODEC_H_
