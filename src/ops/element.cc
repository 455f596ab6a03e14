#include "ops/element.h"

#include <cstring>

#include "kv/element_bits.h"

namespace inferscale {

namespace {

double Decode(uint32_t bits, Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return std::bit_cast<float>(bits);
    case Dtype::kF16:
      return DecodeF16(static_cast<uint16_t>(bits));
    case Dtype::kBF16:
      return DecodeBf16(static_cast<uint16_t>(bits));
    case Dtype::kI8:
      return static_cast<int8_t>(bits);
    case Dtype::kF8E4M3:
      return DecodeF8E4M3(static_cast<uint8_t>(bits));
  }
  return 0;
}

uint32_t Encode(double value, Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return EncodeFloat(value, kFormatF32);
    case Dtype::kF16:
      return EncodeF16(value);
    case Dtype::kBF16:
      return EncodeBf16(value);
    case Dtype::kI8:
      return static_cast<uint8_t>(EncodeI8(value));
    case Dtype::kF8E4M3:
      return EncodeF8E4M3(value);
  }
  return 0;
}

}  // namespace

double ReadElement(const std::byte* data, Dtype dtype, size_t index) {
  uint32_t bits = 0;
  std::memcpy(&bits, data + index * DtypeSize(dtype), DtypeSize(dtype));
  return Decode(bits, dtype);
}

void WriteElement(std::byte* data, Dtype dtype, size_t index, double value) {
  const uint32_t bits = Encode(value, dtype);
  std::memcpy(data + index * DtypeSize(dtype), &bits, DtypeSize(dtype));
}

double ReadK(const FactKvView& record, uint32_t layer, size_t token, uint32_t head, uint32_t dim) {
  const KvShape& shape = record.shape;
  const size_t channel = size_t{head} * shape.k_dim + dim;
  const double q =
      ReadElement(record.K(layer), shape.dtype, token * shape.kv_heads * shape.k_dim + channel);
  return IsQuantised(shape.dtype) ? q * record.KeyScales(layer)[channel] : q;
}

double ReadV(const FactKvView& record, uint32_t layer, size_t token, uint32_t head, uint32_t dim) {
  const KvShape& shape = record.shape;
  const size_t row = token * shape.kv_heads + head;
  const double q = ReadElement(record.V(layer), shape.dtype, row * shape.v_dim + dim);
  return IsQuantised(shape.dtype) ? q * ReadVScale(record, layer, token, head) : q;
}

float ReadVScale(const FactKvView& record, uint32_t layer, size_t token, uint32_t head) {
  float scale = 0;
  std::memcpy(&scale,
              record.VScales(layer) + (token * record.shape.kv_heads + head) * sizeof(float),
              sizeof(float));
  return scale;
}

}  // namespace inferscale
