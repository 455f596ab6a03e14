#include "engine/template_format.h"

#include <algorithm>
#include <array>
#include <utility>

namespace inferscale {
namespace {

// Facts stand in a system message where the family has one, else in the user's.
constexpr std::array kFamilies = {
    TemplateStrings{.family = "chatml",
                    .marker = "<|im_start|>",
                    .control = "<|im_start|>",
                    .open = "<|im_start|>system\n",
                    .open_end = "\n",
                    .close = "<|im_end|>\n<|im_start|>user\n",
                    .question_end = "<|im_end|>\n<|im_start|>assistant\n",
                    .turn_end = "<|im_end|>",
                    .further = "\n<|im_start|>system\n",
                    .next = "\n<|im_start|>user\n",
                    .stop = ""},
    TemplateStrings{.family = "llama3",
                    .marker = "<|start_header_id|>",
                    .control = "<|start_header_id|>",
                    .open = "<|start_header_id|>system<|end_header_id|>\n\n",
                    .open_end = "\n",
                    .close = "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
                    .question_end = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
                    .turn_end = "<|eot_id|>",
                    .further = "<|start_header_id|>system<|end_header_id|>\n\n",
                    .next = "<|start_header_id|>user<|end_header_id|>\n\n",
                    .stop = ""},
    TemplateStrings{.family = "gemma",
                    .marker = "<start_of_turn>",
                    .control = "<start_of_turn>",
                    .open = "<start_of_turn>user\n",
                    .open_end = "\n\n",
                    .close = "\n",
                    .question_end = "<end_of_turn>\n<start_of_turn>model\n",
                    .turn_end = "<end_of_turn>",
                    .further = "\n<start_of_turn>user\n",
                    .next = "\n<start_of_turn>user\n",
                    .stop = ""},
    // In the first vocabularies of this family [INST] is no control token but plain text.
    TemplateStrings{.family = "mistral",
                    .marker = "[INST]",
                    .control = "",
                    .open = "[INST] ",
                    .open_end = "\n\n",
                    .close = "\n",
                    .question_end = " [/INST]",
                    .turn_end = "</s>",
                    .further = "[INST] ",
                    .next = "[INST] ",
                    .stop = ""},
};
constexpr TemplateStrings kBaseModel = {.family = "base",
                                        .marker = "",
                                        .control = "",
                                        .open = "",
                                        .open_end = "\n\n",
                                        .close = "\nUser: ",
                                        .question_end = "\nAssistant:",
                                        .turn_end = "",
                                        .further = "\n\n",
                                        .next = "\nUser: ",
                                        .stop = "\nUser:"};

// The strings as token ids.
struct TemplateTokens {
  std::vector<Token> open;
  std::vector<Token> open_end;
  std::vector<Token> close;
  std::vector<Token> question_end;
  std::vector<Token> turn_end;
  std::vector<Token> further;
  std::vector<Token> next;
};

class TemplateFormat final : public PromptFormat {
 public:
  TemplateFormat(const Tokenizer& tokenizer, const TemplateStrings& strings, TemplateTokens tokens)
      : tokenizer_(tokenizer), strings_(strings), markup_(std::move(tokens)) {
    for (const auto* part : {&markup_.open, &markup_.close, &markup_.question_end,
                             &markup_.turn_end, &markup_.further}) {
      for (const Token token : *part) {
        if (tokenizer.IsUserDefined(token)) reserved_.push_back(token);
      }
    }
  }

  Result<std::vector<Token>> Header(std::string_view system) const override {
    std::vector<Token> tokens = tokenizer_.Bos();
    Append(tokens, markup_.open);
    INFERSCALE_ASSIGN(const auto text, Text(system));
    Append(tokens, text);
    return Append(tokens, markup_.open_end);
  }

  Result<std::vector<Token>> Text(std::string_view text) const override {
    return tokenizer_.Text(text, reserved_);
  }

  Result<std::vector<Token>> Plain(std::string_view text) const override {
    std::vector<Token> tokens = tokenizer_.Bos();
    INFERSCALE_ASSIGN(const auto more, Text(text));
    return Append(tokens, more);
  }

  void Expect(std::string_view text) const override { tokenizer_.Expect(text); }

  Result<std::vector<Token>> Tail(std::string_view question) const override {
    return Ask(markup_.close, question);
  }

  std::vector<Token> MemoryBlock(bool ended) const override {
    return Continue(ended, markup_.further);
  }

  Result<std::vector<Token>> NextTail(bool ended, std::string_view question) const override {
    return Ask(Continue(ended, markup_.next), question);
  }

  std::string_view Stop() const override { return strings_.stop; }

  Hash128 Hash() const override {
    Hasher hasher;
    for (const std::string_view part :
         {strings_.family, strings_.open, strings_.open_end, strings_.close, strings_.question_end,
          strings_.turn_end, strings_.further, strings_.next}) {
      hasher.Add(part);
    }
    return hasher.Add(uint64_t{tokenizer_.Bos().size()}).Digest();
  }

 private:
  static std::vector<Token>& Append(std::vector<Token>& tokens, const std::vector<Token>& more) {
    tokens.insert(tokens.end(), more.begin(), more.end());
    return tokens;
  }

  std::vector<Token> Continue(bool ended, const std::vector<Token>& after) const {
    std::vector<Token> tokens;
    if (!ended) tokens = markup_.turn_end;
    return Append(tokens, after);
  }

  Result<std::vector<Token>> Ask(std::vector<Token> tokens, std::string_view question) const {
    INFERSCALE_ASSIGN(const auto text, Text(question));
    Append(tokens, text);
    return Append(tokens, markup_.question_end);
  }

  const Tokenizer& tokenizer_;
  TemplateStrings strings_;
  TemplateTokens markup_;
  std::vector<Token> reserved_;
};

}  // namespace

Result<TemplateStrings> RecogniseTemplate(std::string_view chat_template) {
  if (chat_template.empty()) return kBaseModel;
  for (const TemplateStrings& strings : kFamilies) {
    if (chat_template.find(strings.marker) == std::string_view::npos) continue;
    // Llama 2 has [INST] too, but puts its system text into marks of its own.
    if (chat_template.find("<<SYS>>") != std::string_view::npos) break;
    return strings;
  }
  constexpr size_t kShown = 60;
  return Fail(Code::kUnsupported,
              "the chat template is of no known family (ChatML, Llama 3, Gemma, Mistral): {}{}",
              chat_template.substr(0, kShown), chat_template.size() > kShown ? "..." : "");
}

Result<std::unique_ptr<PromptFormat>> MakePromptFormat(const Tokenizer& tokenizer,
                                                       std::string_view chat_template,
                                                       const std::string& label) {
  auto strings = RecogniseTemplate(chat_template);
  if (!strings) return Wrap(std::move(strings).error(), label);
  if (!strings->control.empty()) {
    INFERSCALE_ASSIGN(const auto control, tokenizer.Markup(strings->control));
    if (control.size() != 1) {
      return Fail(Code::kUnsupported,
                  "{}: its template is {}, but {} is no token of its vocabulary", label,
                  strings->family, strings->control);
    }
  }
  TemplateTokens tokens;
  INFERSCALE_ASSIGN(tokens.open, tokenizer.Markup(strings->open));
  INFERSCALE_ASSIGN(tokens.open_end, tokenizer.Markup(strings->open_end));
  INFERSCALE_ASSIGN(tokens.close, tokenizer.Markup(strings->close));
  INFERSCALE_ASSIGN(tokens.question_end, tokenizer.Markup(strings->question_end));
  INFERSCALE_ASSIGN(tokens.turn_end, tokenizer.Markup(strings->turn_end));
  INFERSCALE_ASSIGN(tokens.further, tokenizer.Markup(strings->further));
  INFERSCALE_ASSIGN(tokens.next, tokenizer.Markup(strings->next));
  return std::make_unique<TemplateFormat>(tokenizer, *strings, std::move(tokens));
}

}  // namespace inferscale
