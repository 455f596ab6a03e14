#include "engine/llama/vocabulary.h"

#include <algorithm>
#include <limits>

#include "base/utf8.h"

namespace inferscale {

Vocabulary::Vocabulary(const llama_model* model) : vocab_(llama_model_get_vocab(model)) {}

std::vector<Token> Vocabulary::Bos() const {
  if (!llama_vocab_get_add_bos(vocab_)) return {};
  return {llama_vocab_bos(vocab_)};
}

std::vector<Token> Vocabulary::Tokenize(std::string_view text, bool special) const {
  if (text.empty() || llama_vocab_type(vocab_) == LLAMA_VOCAB_TYPE_NONE) return {};
  std::vector<Token> tokens(text.size() + 2);
  const auto length = static_cast<int32_t>(text.size());
  int32_t count = llama_tokenize(vocab_, text.data(), length, tokens.data(),
                                 static_cast<int32_t>(tokens.size()), false, special);
  if (count < 0) {  // a normaliser made the text longer
    tokens.resize(static_cast<size_t>(-count));
    count = llama_tokenize(vocab_, text.data(), length, tokens.data(),
                           static_cast<int32_t>(tokens.size()), false, special);
  }
  tokens.resize(static_cast<size_t>(std::max(count, 0)));
  return tokens;
}

bool Vocabulary::IsUserDefined(Token token) const {
  return (llama_vocab_get_attr(vocab_, token) & LLAMA_TOKEN_ATTR_USER_DEFINED) != 0 &&
         Piece(token, true).find_first_not_of(" \t\r\n") != std::string::npos;
}

Result<std::vector<Token>> Vocabulary::Markup(std::string_view text) const {
  return Tokenize(text, true);
}

Result<std::vector<Token>> Vocabulary::Text(std::string_view text,
                                            std::span<const Token> reserved) const {
  if (const size_t bad = FindInvalidUtf8(text); bad != std::string_view::npos) {
    return Fail(Code::kInvalid, "the text is not UTF-8 at byte {}", bad);
  }
  if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max() / 2)) {
    return Fail(Code::kInvalid, "a text of {} bytes is too long", text.size());
  }
  std::vector<Token> tokens;
  AppendText(text, reserved, tokens);
  return tokens;
}

void Vocabulary::AppendText(std::string_view text, std::span<const Token> reserved,
                            std::vector<Token>& out) const {
  // parse_special = false is not enough: it lets user-defined tokens through, and a tokenizer that
  // merges by text can put a control token's text together from ordinary pieces.
  const std::vector<Token> tokens = Tokenize(text, false);
  const auto bad = std::find_if(tokens.begin(), tokens.end(), [&](Token token) {
    return llama_vocab_is_control(vocab_, token) || llama_vocab_is_eog(vocab_, token) ||
           std::find(reserved.begin(), reserved.end(), token) != reserved.end();
  });
  if (bad == tokens.end()) {
    out.insert(out.end(), tokens.begin(), tokens.end());
    return;
  }
  const std::string marker = Piece(*bad, true);
  const size_t at = marker.empty() ? std::string_view::npos : text.find(marker);
  // Cut after the marker's first character; a marker of one character is left out.
  size_t first = 1;
  while (first < marker.size() && (static_cast<unsigned char>(marker[first]) & 0xC0) == 0x80) {
    ++first;
  }
  if (at == std::string_view::npos) {
    for (const Token token : tokens) {
      if (token != *bad) out.push_back(token);
    }
    return;
  }
  const bool whole = first >= marker.size();
  AppendText(text.substr(0, whole ? at : at + first), reserved, out);
  AppendText(text.substr(at + first), reserved, out);
}

std::string Vocabulary::Piece(Token token, bool special) const {
  if (!Contains(token) || llama_vocab_type(vocab_) == LLAMA_VOCAB_TYPE_NONE) return {};
  std::string piece(32, '\0');
  int32_t count = llama_token_to_piece(vocab_, token, piece.data(),
                                       static_cast<int32_t>(piece.size()), 0, special);
  if (count < 0) {
    piece.resize(static_cast<size_t>(-count));
    count = llama_token_to_piece(vocab_, token, piece.data(), static_cast<int32_t>(piece.size()), 0,
                                 special);
  }
  piece.resize(static_cast<size_t>(std::max(count, 0)));
  return piece;
}

}  // namespace inferscale
