// A grammar for answers that keep to a JSON Schema.
#ifndef INFERSCALE_ENGINE_SCHEMA_GRAMMAR_H_
#define INFERSCALE_ENGINE_SCHEMA_GRAMMAR_H_

#include <string>
#include <string_view>

#include "base/result.h"

namespace inferscale {

// For Sampling::grammar, from a JSON Schema (2020-12) as text: whatever the grammar takes is valid
// by the schema (but for the 29th of February, which it takes in every year), though not the other
// way round: an object's properties come in the schema's order, and no others than it names where
// it names any.
//
// Understood: type, properties, required, additionalProperties, items, minItems, maxItems,
// minLength, maxLength, enum, const, anyOf, allOf of one, $ref within the schema, format (date,
// time, date-time, uuid). Words that only describe are passed over. kUnsupported names any other
// that could refuse a value, kInvalid what is no schema.
Result<std::string> SchemaGrammar(std::string_view schema);

}  // namespace inferscale

#endif  // INFERSCALE_ENGINE_SCHEMA_GRAMMAR_H_
