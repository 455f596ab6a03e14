// UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF.
#ifndef INFERSCALE_BASE_UTF8_H_
#define INFERSCALE_BASE_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace inferscale {

// The offset of the first byte that does not belong to valid UTF-8, or npos if all is valid.
size_t FindInvalidUtf8(std::string_view text);

// How many bytes at the start of `text` are whole characters. A stream of tokens splits characters;
// the rest waits for the next token. An invalid byte counts as a whole character.
size_t CompleteUtf8Prefix(std::string_view text);

// `text` with U+FFFD in the place of every invalid byte.
std::string ReplaceInvalidUtf8(std::string_view text);

}  // namespace inferscale

#endif  // INFERSCALE_BASE_UTF8_H_
