// Text as it is compared, not as it is shown.
#ifndef INFERSCALE_MEMORY_FOLD_H_
#define INFERSCALE_MEMORY_FOLD_H_

#include <string>
#include <string_view>

namespace inferscale {

// Takes the first character (valid UTF-8; a damaged one counts as U+FFFD) off `text`, not empty.
char32_t TakeCharacter(std::string_view& text);
void AppendUtf8(char32_t character, std::string& out);

// Lower case by Unicode's simple one-to-one mappings for Latin, Greek, Cyrillic and Armenian; other
// scripts with case are left as they are. No locale.
char32_t FoldCase(char32_t character);
std::string FoldCase(std::string_view text);

bool IsSpace(char32_t character);
bool IsBlank(std::string_view text);  // nothing but spaces, or empty
// Marks of punctuation between words; not signs that carry meaning, as in "C++", "#1" or "5 %".
bool IsPunctuation(char32_t character);

}  // namespace inferscale

#endif  // INFERSCALE_MEMORY_FOLD_H_
