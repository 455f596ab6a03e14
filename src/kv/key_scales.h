// The scales of a model's quantised keys: one for every channel, [layer][head][dim], the same for
// every record. They are made once, from the keys of a calibration text, and never change: what was
// stored under them means nothing without exactly these numbers.
#ifndef INFERSCALE_KV_KEY_SCALES_H_
#define INFERSCALE_KV_KEY_SCALES_H_

#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "kv/fingerprint.h"
#include "kv/shape.h"

namespace inferscale {

struct KeyScales {
  Fingerprint model;          // whose keys they are for
  KvShape shape;              // of records, with the quantised dtype
  std::vector<float> values;  // shape.KeyScales() finite positive numbers

  // Under which quantised records are stored: the model's, the codec and every scale. So records
  // made with other scales are other records, whatever became of the file.
  Fingerprint RecordFingerprint() const;
};

// `maxima`: the largest |K| of each channel in the calibration text; `margin` >= 1 leaves room for
// larger ones elsewhere. A channel that was never used gets the largest scale of its head.
KeyScales MakeKeyScales(const Fingerprint& model, const KvShape& shape,
                        std::span<const float> maxima, float margin);

// As a file; docs/codecs.md has the format. Parsing gives kCorrupt unless every byte is as written.
std::vector<std::byte> EncodeKeyScales(const KeyScales& scales);
Result<KeyScales> ParseKeyScales(ByteSpan bytes);

}  // namespace inferscale

#endif  // INFERSCALE_KV_KEY_SCALES_H_
