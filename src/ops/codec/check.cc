#include "ops/codec/check.h"

namespace inferscale {

Status CheckCodec(const FactKvView& plain, const FactKvView& quantised) {
  INFERSCALE_TRY(plain.shape.Validate());
  INFERSCALE_TRY(quantised.shape.Validate());
  KvShape same = quantised.shape;
  same.dtype = plain.shape.dtype;
  if (same != plain.shape || plain.tokens != quantised.tokens || IsQuantised(plain.shape.dtype) ||
      !IsQuantised(quantised.shape.dtype)) {
    return Fail(Code::kInvalid, "codec: {} tokens of {} and {} of {}", plain.tokens,
                plain.shape.ToString(), quantised.tokens, quantised.shape.ToString());
  }
  if (plain.tokens == 0) return {};
  if (plain.data == nullptr || quantised.data == nullptr || quantised.key_scales == nullptr) {
    return Fail(Code::kInvalid, "codec: a record has no data or no key scales");
  }
  return {};
}

}  // namespace inferscale
