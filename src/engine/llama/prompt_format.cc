#include "engine/llama/prompt_format.h"

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
                    .next = "\n<|im_start|>user\n"},
    TemplateStrings{.family = "llama3",
                    .marker = "<|start_header_id|>",
                    .control = "<|start_header_id|>",
                    .open = "<|start_header_id|>system<|end_header_id|>\n\n",
                    .open_end = "\n",
                    .close = "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
                    .question_end = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
                    .turn_end = "<|eot_id|>",
                    .further = "<|start_header_id|>system<|end_header_id|>\n\n",
                    .next = "<|start_header_id|>user<|end_header_id|>\n\n"},
    TemplateStrings{.family = "gemma",
                    .marker = "<start_of_turn>",
                    .control = "<start_of_turn>",
                    .open = "<start_of_turn>user\n",
                    .open_end = "\n\n",
                    .close = "\n",
                    .question_end = "<end_of_turn>\n<start_of_turn>model\n",
                    .turn_end = "<end_of_turn>",
                    .further = "\n<start_of_turn>user\n",
                    .next = "\n<start_of_turn>user\n"},
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
                    .next = "[INST] "},
};

class TemplateFormat final : public PromptFormat {
 public:
  TemplateFormat(const Vocabulary& vocabulary, const TemplateStrings& strings)
      : vocabulary_(vocabulary), strings_(strings) {
    for (const std::string_view part :
         {strings.open, strings.close, strings.question_end, strings.turn_end, strings.further}) {
      for (const Token token : vocabulary.Markup(part)) {
        if (vocabulary.IsUserDefined(token)) reserved_.push_back(token);
      }
    }
  }

  std::vector<Token> Header(std::string_view system) const override {
    std::vector<Token> tokens = vocabulary_.Bos();
    Append(tokens, vocabulary_.Markup(strings_.open));
    // The operator's own text: what is not UTF-8 in it is left out rather than refused.
    Append(tokens, vocabulary_.Text(system, reserved_).value_or(std::vector<Token>{}));
    return Append(tokens, vocabulary_.Markup(strings_.open_end));
  }

  Result<std::vector<Token>> Text(std::string_view text) const override {
    return vocabulary_.Text(text, reserved_);
  }

  Result<std::vector<Token>> Tail(std::string_view question) const override {
    return Ask(vocabulary_.Markup(strings_.close), question);
  }

  std::vector<Token> MemoryBlock(bool ended) const override {
    return Continue(ended, strings_.further);
  }

  Result<std::vector<Token>> NextTail(bool ended, std::string_view question) const override {
    return Ask(Continue(ended, strings_.next), question);
  }

  Hash128 Hash() const override {
    Hasher hasher;
    for (const std::string_view part :
         {strings_.family, strings_.open, strings_.open_end, strings_.close, strings_.question_end,
          strings_.turn_end, strings_.further, strings_.next}) {
      hasher.Add(part);
    }
    return hasher.Add(uint64_t{vocabulary_.Bos().size()}).Digest();
  }

 private:
  static std::vector<Token>& Append(std::vector<Token>& tokens, const std::vector<Token>& more) {
    tokens.insert(tokens.end(), more.begin(), more.end());
    return tokens;
  }

  std::vector<Token> Continue(bool ended, std::string_view after) const {
    std::vector<Token> tokens;
    if (!ended) tokens = vocabulary_.Markup(strings_.turn_end);
    return Append(tokens, vocabulary_.Markup(after));
  }

  Result<std::vector<Token>> Ask(std::vector<Token> tokens, std::string_view question) const {
    INFERSCALE_ASSIGN(const auto text, Text(question));
    Append(tokens, text);
    return Append(tokens, vocabulary_.Markup(strings_.question_end));
  }

  const Vocabulary& vocabulary_;
  TemplateStrings strings_;
  std::vector<Token> reserved_;
};

}  // namespace

Result<TemplateStrings> RecogniseTemplate(std::string_view chat_template) {
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

Result<std::unique_ptr<PromptFormat>> MakePromptFormat(const Vocabulary& vocabulary,
                                                       const char* chat_template,
                                                       const std::string& label) {
  if (chat_template == nullptr) {
    return Fail(Code::kUnsupported, "{}: has no chat template; is it an instruct model?", label);
  }
  auto strings = RecogniseTemplate(chat_template);
  if (!strings) return Wrap(std::move(strings).error(), label);
  if (!strings->control.empty() && vocabulary.Markup(strings->control).size() != 1) {
    return Fail(Code::kUnsupported, "{}: its template is {}, but {} is no token of its vocabulary",
                label, strings->family, strings->control);
  }
  return std::make_unique<TemplateFormat>(vocabulary, *strings);
}

}  // namespace inferscale
