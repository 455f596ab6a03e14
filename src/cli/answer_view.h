// Answers as JSON and as explanations for people.
#ifndef INFERSCALE_CLI_ANSWER_VIEW_H_
#define INFERSCALE_CLI_ANSWER_VIEW_H_

#include <boost/json/object.hpp>
#include <string>
#include <vector>

#include "app/app.h"
#include "cli/output.h"

namespace inferscale {

std::string_view FinishName(FinishReason finish);  // "stop", "length", "cancelled"

// What no step accounts for: waiting for a slot, handing over between threads.
double OtherMs(const AskTimes& times);
boost::json::object TimesToJson(const AskTimes& times);
boost::json::object TokensToJson(const GenerateStats& stats);
// {"answer","finish","mode","facts":[...],"tokens":{...},"times":{...}}
boost::json::object AnswerToJson(const Answer& answer);

// Which facts, with score, where their KV came from and their tokens.
Table ExplainFacts(const std::vector<UsedFact>& facts);
// Tokens and milliseconds of every step, two lines.
std::string ExplainNumbers(const Answer& answer);

}  // namespace inferscale

#endif  // INFERSCALE_CLI_ANSWER_VIEW_H_
