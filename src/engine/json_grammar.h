// A grammar for answers that are JSON.
#ifndef INFERSCALE_ENGINE_JSON_GRAMMAR_H_
#define INFERSCALE_ENGINE_JSON_GRAMMAR_H_

#include <string_view>

namespace inferscale {

// For Sampling::grammar: one JSON object (RFC 8259). Numbers fit into a double, no half of a
// surrogate pair is escaped, and there is little room between tokens, in which a model could get
// lost.
inline constexpr std::string_view kJsonObjectGrammar =
    R"GBNF(root ::= object
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" room (member ("," room member)*)? "}"
member ::= string ":" room value room
array ::= "[" room (value room ("," room value room)*)? "]"
string ::= "\"" ([^"\\\x00-\x1f\x7f] | "\\" (["\\/bfnrt] | "u" unit))* "\""
unit ::= [0-9a-cefA-CEF] hex hex hex | [dD] [0-7] hex hex
hex ::= [0-9a-fA-F]
number ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?
room ::= (" " | "\n" [ \t]{0,16})?
)GBNF";

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_JSON_GRAMMAR_H_
