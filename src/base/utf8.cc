#include "base/utf8.h"

#include <cstdint>

namespace inferscale {
namespace {

// The length of the character at text[i], 0 if its bytes are invalid, or -n if n more bytes could
// still make it valid.
int CharacterAt(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) { return static_cast<uint8_t>(text[k]); };
  const uint8_t lead = byte(i);
  if (lead < 0x80) return 1;
  int length = 0;
  uint8_t low = 0x80;  // Bounds of the second byte: they exclude overlong forms and surrogates.
  uint8_t high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return 0;
  }
  for (int k = 1; k < length; ++k) {
    const size_t at = i + static_cast<size_t>(k);
    if (at >= text.size()) return -(length - k);
    if (byte(at) < low || byte(at) > high) return 0;
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

}  // namespace

size_t FindInvalidUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const int length = CharacterAt(text, i);
    if (length <= 0) return i;
    i += static_cast<size_t>(length);
  }
  return std::string_view::npos;
}

size_t CompleteUtf8Prefix(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const int length = CharacterAt(text, i);
    if (length < 0) return i;
    i += length == 0 ? 1 : static_cast<size_t>(length);
  }
  return i;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const int length = CharacterAt(text, i);
    if (length <= 0) {
      out += "\xEF\xBF\xBD";
      ++i;
    } else {
      out += text.substr(i, static_cast<size_t>(length));
      i += static_cast<size_t>(length);
    }
  }
  return out;
}

}  // namespace inferscale
