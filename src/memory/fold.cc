#include "memory/fold.h"

#include "base/utf8.h"

namespace inferscale {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

bool In(char32_t c, char32_t first, char32_t last) { return c >= first && c <= last; }

// In these blocks upper and lower case take turns; `upper_is_odd` says which comes first.
char32_t FoldAlternating(char32_t c, bool upper_is_odd) {
  return ((c & 1) == 1) == upper_is_odd ? c + 1 : c;
}

char32_t FoldLatin(char32_t c) {
  if (In(c, 0xC0, 0xDE) && c != 0xD7) return c + 32;
  if (c == 0x130) return 'i';
  if (c == 0x178) return 0xFF;
  if (c == 0x1E9E) return 0xDF;
  if (In(c, 0x100, 0x137) || In(c, 0x14A, 0x177)) return FoldAlternating(c, false);
  if (In(c, 0x139, 0x148) || In(c, 0x179, 0x17E)) return FoldAlternating(c, true);
  if (In(c, 0x1E00, 0x1E95) || In(c, 0x1EA0, 0x1EFF)) return FoldAlternating(c, false);
  return c;
}

char32_t FoldGreek(char32_t c) {
  if (In(c, 0x391, 0x3A9) && c != 0x3A2) return c + 32;
  if (c == 0x3C2) return 0x3C3;  // final sigma
  if (c == 0x386) return 0x3AC;
  if (In(c, 0x388, 0x38A)) return c + 37;
  if (c == 0x38C) return 0x3CC;
  if (In(c, 0x38E, 0x38F)) return c + 63;
  return c;
}

char32_t FoldCyrillicOrArmenian(char32_t c) {
  if (In(c, 0x410, 0x42F)) return c + 32;
  if (In(c, 0x400, 0x40F)) return c + 80;
  if (In(c, 0x460, 0x481) || In(c, 0x48A, 0x4BF) || In(c, 0x4D0, 0x52F)) {
    return FoldAlternating(c, false);
  }
  if (In(c, 0x531, 0x556)) return c + 48;
  return c;
}

}  // namespace

char32_t TakeCharacter(std::string_view& text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (size == 1) {
    text.remove_prefix(1);
    return lead;
  }
  if (size > text.size() || FindInvalidUtf8(text.substr(0, size)) != std::string_view::npos) {
    text.remove_prefix(1);
    return kReplacement;
  }
  char32_t c = lead & (0x7FU >> size);
  for (size_t i = 1; i < size; ++i) c = (c << 6) | (byte(i) & 0x3FU);
  text.remove_prefix(size);
  return c;
}

void AppendUtf8(char32_t c, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

char32_t FoldCase(char32_t c) {
  if (c < 0x80) return In(c, 'A', 'Z') ? c + 32 : c;
  if (c < 0x180 || In(c, 0x1E00, 0x1EFF)) return FoldLatin(c);
  if (In(c, 0x370, 0x3FF)) return FoldGreek(c);
  if (In(c, 0x400, 0x58F)) return FoldCyrillicOrArmenian(c);
  return c;
}

std::string FoldCase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) AppendUtf8(FoldCase(TakeCharacter(text)), out);
  return out;
}

bool IsSpace(char32_t c) {
  return c == ' ' || In(c, 0x09, 0x0D) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         In(c, 0x2000, 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsBlank(std::string_view text) {
  while (!text.empty()) {
    if (!IsSpace(TakeCharacter(text))) return false;
  }
  return true;
}

bool IsPunctuation(char32_t c) {
  if (c < 0x80)
    return std::string_view("!\"'(),-.:;?[]_`{}").find(static_cast<char>(c)) !=
           std::string_view::npos;
  return c == 0xA1 || c == 0xAB || c == 0xB7 || c == 0xBB || c == 0xBF || In(c, 0x2010, 0x2027) ||
         In(c, 0x2039, 0x203A) || In(c, 0x3001, 0x3003) || In(c, 0x3008, 0x3011) || c == 0xFF01 ||
         c == 0xFF0C || c == 0xFF0E || c == 0xFF1A || c == 0xFF1B || c == 0xFF1F;
}

}  // namespace inferscale
