// PromptFormat for the chat templates that are known here by their own strings: whoever renders a
// template's Jinja text can't say where a fact begins. A base model, which has none, gets a plain
// dialogue of "User:" and "Assistant:".
#ifndef INFERSCALE_ENGINE_TEMPLATE_FORMAT_H_
#define INFERSCALE_ENGINE_TEMPLATE_FORMAT_H_

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/tokenizer.h"
#include "kv/prompt_format.h"

namespace inferscale {

// One family's strings. A prompt is
//   [BOS] open system open_end  facts  close question question_end
// and a later turn adds [turn_end] further before facts, or [turn_end] next question question_end.
// turn_end is there only if the model did not produce it; `stop` ends an answer as it does, where
// there is no token for that.
struct TemplateStrings {
  std::string_view family;
  std::string_view marker;   // what tells this family's template text from others
  std::string_view control;  // a string that must be a single token; empty if none is
  std::string_view open;
  std::string_view open_end;
  std::string_view close;
  std::string_view question_end;
  std::string_view turn_end;
  std::string_view further;
  std::string_view next;
  std::string_view stop;
};

// By the text of a model's chat template, which may be empty. kUnsupported names what was found.
Result<TemplateStrings> RecogniseTemplate(std::string_view chat_template);

// For a model's own template. kUnsupported, naming `label`, if it is of no known family or if the
// vocabulary lacks the family's control token. `tokenizer` must outlive it.
Result<std::unique_ptr<PromptFormat>> MakePromptFormat(const Tokenizer& tokenizer,
                                                       std::string_view chat_template,
                                                       const std::string& label);

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_TEMPLATE_FORMAT_H_
