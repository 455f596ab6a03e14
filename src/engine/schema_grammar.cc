#include "engine/schema_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <initializer_list>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/json_grammar.h"

namespace inferscale {
namespace {

namespace json = boost::json;

constexpr size_t kMaxBytes = 256 << 10;   // of a grammar
constexpr uint64_t kMaxCount = 1000;      // of items or characters; libllama unrolls them,
constexpr uint64_t kMaxUnrolled = 20000;  // these together
constexpr int kMaxDepth = 32;

// What could refuse a value and is not understood here.
constexpr std::array<std::string_view, 22> kNotUnderstood = {"pattern",
                                                             "multipleOf",
                                                             "contains",
                                                             "minContains",
                                                             "maxContains",
                                                             "prefixItems",
                                                             "additionalItems",
                                                             "unevaluatedItems",
                                                             "minProperties",
                                                             "maxProperties",
                                                             "patternProperties",
                                                             "propertyNames",
                                                             "dependentRequired",
                                                             "dependentSchemas",
                                                             "dependencies",
                                                             "unevaluatedProperties",
                                                             "oneOf",
                                                             "not",
                                                             "if",
                                                             "$dynamicRef",
                                                             "contentEncoding",
                                                             "contentMediaType"};
// Understood of integers alone.
constexpr std::array<std::string_view, 4> kLimits = {"minimum", "maximum", "exclusiveMinimum",
                                                     "exclusiveMaximum"};

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kFormats = {{
    {"date", "date"},
    {"time", "time"},
    {"date-time", R"(date "T" time)"},
    {"uuid", R"(hex{8} "-" hex{4} "-" hex{4} "-" hex{4} "-" hex{12})"},
}};
constexpr std::string_view kFormatRules =
    R"GBNF(date ::= [0-9]{4} "-" (("0" [13578] | "1" [02]) "-" day31 | ("0" [469] | "11") "-" day30 | "02-" day29)
day29 ::= "0" [1-9] | [12] [0-9]
day30 ::= day29 | "30"
day31 ::= day30 | "31"
time ::= ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("Z" | [-+] ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9])
integer ::= "-"? ("0" | [1-9] [0-9]{0,15})
char ::= [^"\\\x00-\x1f\x7f] | "\\" (["\\/bfnrt] | "u" unit)
)GBNF";

// A literal of GBNF.
std::string Literal(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

constexpr int64_t kMaxInteger = 999'999'999'999'999;  // 15 digits, which a double holds

std::string AnyDigits(size_t count) { return count == 0 ? "" : fmt::format(" [0-9]{{{}}}", count); }

// Numbers of as many digits from `low` to `high`.
std::string DigitRange(std::string_view low, std::string_view high) {
  if (low.empty()) return "";
  const std::string_view low_rest = low.substr(1);
  const std::string_view high_rest = high.substr(1);
  if (low[0] == high[0]) {
    const std::string rest = DigitRange(low_rest, high_rest);
    return fmt::format(R"("{}"{}{})", low[0], rest.empty() ? "" : " ", rest);
  }
  std::vector<std::string> choices;
  const auto add = [&](char digit, const std::string& rest) {
    choices.push_back(fmt::format(R"("{}"{}{})", digit, rest.empty() ? "" : " ", rest));
  };
  // First digits behind which anything may come.
  char from = low[0];
  char to = high[0];
  if (low_rest.find_first_not_of('0') != std::string_view::npos) {
    add(from++, DigitRange(low_rest, std::string(low_rest.size(), '9')));
  }
  const bool cut = high_rest.find_first_not_of('9') != std::string_view::npos;
  if (cut) --to;
  if (from <= to) choices.push_back(fmt::format("[{}-{}]{}", from, to, AnyDigits(low_rest.size())));
  if (cut) add(high[0], DigitRange(std::string(high_rest.size(), '0'), high_rest));
  return fmt::format("({})", fmt::join(choices, " | "));
}

// Decimal integers from `low`, which is not negative, to `high`.
void AddIntegers(int64_t low, int64_t high, std::string_view sign,
                 std::vector<std::string>& choices) {
  while (low <= high) {
    const std::string first = std::to_string(low);
    const std::string nines(first.size(), '9');
    const int64_t last = std::min(high, static_cast<int64_t>(std::stoll(nines)));
    choices.push_back(std::string(sign) + DigitRange(first, std::to_string(last)));
    low = last + 1;
  }
}

std::string_view TypeName(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "boolean";
    case json::kind::int64:
    case json::kind::uint64:
      return "integer";
    case json::kind::double_:
      return "number";
    case json::kind::string:
      return "string";
    case json::kind::array:
      return "array";
    case json::kind::object:
      return "object";
  }
  return "";
}

bool IsOfType(const json::value& value, std::string_view type) {
  const std::string_view name = TypeName(value);
  return name == type || (type == "number" && name == "integer");
}

class Builder {
 public:
  explicit Builder(const json::value& root) : root_(root) {}

  Result<std::string> Build() {
    INFERSCALE_ASSIGN(const std::string root, Reference("#"));
    std::string grammar = "root ::= " + root + "\n";
    for (const auto& [name, body] : rules_) grammar += fmt::format("{} ::= {}\n", name, body);
    if (grammar.size() > kMaxBytes || unrolled_ > kMaxUnrolled) return TooLarge();
    grammar += kFormatRules;
    grammar += kJsonObjectGrammar.substr(kJsonObjectGrammar.find('\n') + 1);
    return grammar;
  }

 private:
  static tl::unexpected<Error> TooLarge() {
    return Fail(Code::kUnsupported, "the JSON schema is too large");
  }

  std::string Rule(std::string body) {
    bytes_ += body.size();
    rules_.emplace_back(fmt::format("r{}", rules_.size()), std::move(body));
    return rules_.back().first;
  }

  // The rule of what a pointer within the schema names; made once, so it may name itself.
  Result<std::string> Reference(const std::string& pointer) {
    if (const auto found = references_.find(pointer); found != references_.end()) {
      return found->second;
    }
    json::error_code error;
    const json::value* target =
        pointer.starts_with('#') ? root_.find_pointer(pointer.substr(1), error) : nullptr;
    if (target == nullptr || error) {
      return Fail(Code::kInvalid, "the JSON schema has a $ref to '{}', which is not in it",
                  pointer);
    }
    const size_t number = rules_.size();
    const std::string name = Rule("");
    references_[pointer] = name;
    INFERSCALE_ASSIGN(rules_[number].second, Value(*target));
    return name;
  }

  // What a value of `schema` is.
  Result<std::string> Value(const json::value& schema) {
    if (depth_ >= kMaxDepth || bytes_ > kMaxBytes) return TooLarge();
    if (schema.is_bool()) {
      if (schema.get_bool()) return "value";
      return Fail(Code::kUnsupported, "the JSON schema has a 'false', which no answer keeps to");
    }
    const json::object* object = schema.if_object();
    if (object == nullptr) {
      return Fail(Code::kInvalid, "the JSON schema has a {} where a schema must stand",
                  TypeName(schema));
    }
    ++depth_;
    auto made = OfObject(*object);
    --depth_;
    return made;
  }

  Result<std::string> OfObject(const json::object& schema) {
    for (const std::string_view word : kNotUnderstood) {
      if (schema.contains(word)) return NotUnderstood(word);
    }
    for (const std::string_view word : {"$ref", "anyOf", "allOf"}) {
      if (const json::value* value = schema.if_contains(word)) {
        INFERSCALE_TRY(StandsAlone(schema, word));
        if (word == "$ref") return OfReference(*value);
        return OfChoices(*value, word);
      }
    }
    INFERSCALE_ASSIGN(const std::vector<std::string> types, Types(schema));
    if (schema.contains("const") || schema.contains("enum")) return OfListed(schema, types);
    for (const std::string_view limit : kLimits) {
      const bool number = std::ranges::find(types, "number") != types.end();
      if (schema.contains(limit) && (types.empty() || number)) return NotUnderstood(limit);
    }
    if (types.empty() && schema.contains("properties")) return OfType(schema, "object");
    if (types.empty() && schema.contains("items")) return OfType(schema, "array");
    if (types.empty()) return "value";
    std::vector<std::string> choices;
    for (const std::string& type : types) {
      INFERSCALE_ASSIGN(choices.emplace_back(), OfType(schema, type));
    }
    return choices.size() == 1 ? choices.front() : fmt::format("({})", fmt::join(choices, " | "));
  }

  static tl::unexpected<Error> NotUnderstood(std::string_view word) {
    return Fail(Code::kUnsupported, "the embedded engine does not understand '{}' in a JSON schema",
                word);
  }
  static tl::unexpected<Error> Wrong(std::string_view word, std::string_view wanted) {
    return Fail(Code::kInvalid, "'{}' in the JSON schema must be {}", word, wanted);
  }

  // Beside a choice, a reference or values nothing else that could refuse a value is put into the
  // grammar, but for what is `heeded`.
  static Status StandsAlone(const json::object& schema, std::string_view word,
                            std::initializer_list<std::string_view> heeded = {}) {
    constexpr std::array<std::string_view, 20> kBeside = {"$ref",
                                                          "anyOf",
                                                          "allOf",
                                                          "type",
                                                          "properties",
                                                          "required",
                                                          "items",
                                                          "enum",
                                                          "const",
                                                          "additionalProperties",
                                                          "minItems",
                                                          "maxItems",
                                                          "uniqueItems",
                                                          "minLength",
                                                          "maxLength",
                                                          "format",
                                                          "minimum",
                                                          "maximum",
                                                          "exclusiveMinimum",
                                                          "exclusiveMaximum"};
    for (const std::string_view other : kBeside) {
      if (other != word && schema.contains(other) && std::ranges::count(heeded, other) == 0) {
        return Fail(Code::kUnsupported,
                    "the embedded engine does not understand '{}' beside '{}' in a JSON schema",
                    other, word);
      }
    }
    return {};
  }

  Result<std::string> OfReference(const json::value& value) {
    if (!value.is_string()) return Wrong("$ref", "a string");
    return Reference(std::string(value.get_string()));
  }

  Result<std::string> OfChoices(const json::value& value, std::string_view word) {
    const json::array* schemas = value.if_array();
    if (schemas == nullptr || schemas->empty()) return Wrong(word, "an array that is not empty");
    if (word == "allOf" && schemas->size() > 1) return NotUnderstood("allOf of several");
    std::vector<std::string> choices;
    for (const json::value& schema : *schemas) {
      INFERSCALE_ASSIGN(choices.emplace_back(), Value(schema));
    }
    return fmt::format("({})", fmt::join(choices, " | "));
  }

  // Of "const" and "enum", or of both.
  static Result<std::string> OfListed(const json::object& schema,
                                      const std::vector<std::string>& types) {
    const json::value* only = schema.if_contains("const");
    const json::value* listed = schema.if_contains("enum");
    INFERSCALE_TRY(StandsAlone(schema, only != nullptr ? "const" : "enum", {"type", "enum"}));
    if (listed != nullptr && !listed->is_array()) return Wrong("enum", "an array");
    std::vector<std::string> literals;
    for (const json::value& value : listed != nullptr ? listed->get_array() : json::array{*only}) {
      const bool fits = types.empty() || std::ranges::any_of(types, [&](const std::string& type) {
                          return IsOfType(value, type);
                        });
      if (fits && (only == nullptr || value == *only)) {
        literals.push_back(Literal(json::serialize(value)));
      }
    }
    if (literals.empty()) {
      return Fail(Code::kInvalid, "the JSON schema allows no value where it lists them");
    }
    return fmt::format("({})", fmt::join(literals, " | "));
  }

  // As the schema says them; none: any.
  static Result<std::vector<std::string>> Types(const json::object& schema) {
    constexpr std::array<std::string_view, 7> kTypes = {"null",   "boolean", "integer", "number",
                                                        "string", "array",   "object"};
    std::vector<std::string> types;
    const json::value* said = schema.if_contains("type");
    if (said == nullptr) return types;
    const json::array list = said->is_array() ? said->get_array() : json::array{*said};
    for (const json::value& type : list) {
      if (!type.is_string() ||
          std::ranges::find(kTypes, std::string_view(type.get_string())) == kTypes.end()) {
        return Wrong("type", fmt::format("one of {}", fmt::join(kTypes, ", ")));
      }
      types.emplace_back(type.get_string());
    }
    if (types.empty()) return Wrong("type", "an array that is not empty");
    return types;
  }

  Result<std::string> OfType(const json::object& schema, std::string_view type) {
    if (type == "null") return R"("null")";
    if (type == "boolean") return R"(("true" | "false"))";
    if (type == "string") return OfString(schema);
    if (type == "array") return OfArray(schema);
    if (type == "object") return OfMembers(schema);
    if (type == "integer") return OfInteger(schema);
    return std::string(type);  // "number"
  }

  // A limit of integers; nullopt if there is none.
  static Result<std::optional<int64_t>> Limit(const json::object& schema, std::string_view word,
                                              int64_t beyond) {
    const json::value* value = schema.if_contains(word);
    if (value == nullptr) return std::nullopt;
    json::error_code error;
    const auto limit = value->to_number<int64_t>(error);  // exact, so no fraction passes
    if (error || limit > kMaxInteger || limit < -kMaxInteger) {
      return Wrong(word, "a whole number of at most 15 digits");
    }
    return limit + beyond;
  }

  static Result<std::string> OfInteger(const json::object& schema) {
    INFERSCALE_ASSIGN(const auto from, Limit(schema, "minimum", 0));
    INFERSCALE_ASSIGN(const auto above, Limit(schema, "exclusiveMinimum", 1));
    INFERSCALE_ASSIGN(const auto to, Limit(schema, "maximum", 0));
    INFERSCALE_ASSIGN(const auto below, Limit(schema, "exclusiveMaximum", -1));
    if (!from && !above && !to && !below) return "integer";
    const int64_t low = std::max(from.value_or(-kMaxInteger), above.value_or(-kMaxInteger));
    const int64_t high = std::min(to.value_or(kMaxInteger), below.value_or(kMaxInteger));
    if (low > high) return Wrong("minimum", "no more than the maximum");
    std::vector<std::string> choices;
    AddIntegers(std::max(int64_t{0}, low), high, "", choices);
    AddIntegers(std::max(int64_t{1}, -high), -low, R"("-" )", choices);
    return fmt::format("({})", fmt::join(choices, " | "));
  }

  static Result<std::optional<uint64_t>> Count(const json::object& schema, std::string_view word) {
    const json::value* value = schema.if_contains(word);
    if (value == nullptr) return std::nullopt;
    json::error_code error;
    const auto count = value->to_number<uint64_t>(error);
    if (error) return Wrong(word, "a whole number of at least 0");
    if (count > kMaxCount) {
      return Fail(Code::kUnsupported, "'{}' in the JSON schema is above {}", word, kMaxCount);
    }
    return count;
  }
  struct Bounds {
    uint64_t least = 0;
    std::optional<uint64_t> most{};
  };
  static Result<Bounds> ReadBounds(const json::object& schema, std::string_view least,
                                   std::string_view most) {
    Bounds bounds;
    INFERSCALE_ASSIGN(const auto low, Count(schema, least));
    INFERSCALE_ASSIGN(bounds.most, Count(schema, most));
    bounds.least = low.value_or(0);
    if (bounds.most && *bounds.most < bounds.least) {
      return Wrong(most, fmt::format("at least '{}'", least));
    }
    return bounds;
  }
  std::string Times(const Bounds& bounds) {
    unrolled_ += bounds.most.value_or(bounds.least);
    if (!bounds.most) return bounds.least == 0 ? "*" : fmt::format("{{{},}}", bounds.least);
    return fmt::format("{{{},{}}}", bounds.least, *bounds.most);
  }

  Result<std::string> OfString(const json::object& schema) {
    INFERSCALE_ASSIGN(const Bounds bounds, ReadBounds(schema, "minLength", "maxLength"));
    const bool bounded = bounds.least > 0 || bounds.most;
    if (const json::value* format = schema.if_contains("format")) {
      for (const auto& [name, rule] : kFormats) {
        if (format->is_string() && format->get_string() == name && !bounded) {
          return fmt::format(R"("\"" {} "\"")", rule);
        }
      }
      return NotUnderstood(bounded ? "format with a length" : "format " + json::serialize(*format));
    }
    if (!bounded) return "string";
    if (bounds.most == 0U) return R"("\"\"")";
    return fmt::format(R"("\"" char{} "\"")", Times(bounds));
  }

  Result<std::string> OfArray(const json::object& schema) {
    if (const json::value* unique = schema.if_contains("uniqueItems")) {
      if (*unique != json::value(false)) return NotUnderstood("uniqueItems");
    }
    INFERSCALE_ASSIGN(const Bounds bounds, ReadBounds(schema, "minItems", "maxItems"));
    if (bounds.most == 0U) return R"("[" room "]")";
    const json::value* items = schema.if_contains("items");
    INFERSCALE_ASSIGN(const std::string made, items == nullptr ? "value" : Value(*items));
    const std::string item = Rule(made + " room");
    Bounds rest{bounds.least > 0 ? bounds.least - 1 : 0, {}};
    if (bounds.most) rest.most = *bounds.most - 1;
    const std::string all = fmt::format(R"({0} ("," room {0}){1})", item, Times(rest));
    return fmt::format(R"("[" room {} "]")", bounds.least > 0 ? all : "(" + all + ")?");
  }

  // An object of named members in the schema's order, or of any members of one kind.
  Result<std::string> OfMembers(const json::object& schema) {
    std::vector<std::string> required;
    if (const json::value* names = schema.if_contains("required")) {
      if (!names->is_array()) return Wrong("required", "an array of names");
      for (const json::value& name : names->get_array()) {
        if (!name.is_string()) return Wrong("required", "an array of names");
        required.emplace_back(name.get_string());
      }
    }
    json::object properties;
    if (const json::value* said = schema.if_contains("properties")) {
      if (!said->is_object()) return Wrong("properties", "an object");
      properties = said->get_object();
    }
    const json::value* others = schema.if_contains("additionalProperties");
    for (const std::string& name : required) {
      if (!properties.contains(name)) properties[name] = others == nullptr ? true : *others;
    }
    if (properties.empty()) return OfAnyMembers(others);
    struct Member {
      std::string rule;
      bool needed;
    };
    std::vector<Member> members;
    for (const auto& [name, value] : properties) {
      const bool needed = std::ranges::find(required, name) != required.end();
      INFERSCALE_ASSIGN(const std::string made, Value(value));
      members.push_back(
          {Rule(fmt::format(R"({} ":" room {} room)", Literal(json::serialize(name)), made)),
           needed});
    }
    // `rest` may come behind a member, `first` where there was none yet.
    std::string rest;
    std::string first;
    for (auto member = members.rbegin(); member != members.rend(); ++member) {
      const std::string behind = rest.empty() ? "" : " " + rest;
      const std::string alone = member->rule + behind;
      if (member->needed) {
        first = alone;
      } else {
        first =
            first.empty() ? fmt::format("({})?", alone) : fmt::format("({} | {})", alone, first);
      }
      first = Rule(first);
      rest = Rule(
          fmt::format(R"(("," room {}){}{})", member->rule, member->needed ? "" : "?", behind));
    }
    return fmt::format(R"("{{" room {} "}}")", first);
  }

  Result<std::string> OfAnyMembers(const json::value* others) {
    if (others == nullptr || *others == json::value(true)) return "object";
    if (*others == json::value(false)) return R"("{" room "}")";
    INFERSCALE_ASSIGN(const std::string made, Value(*others));
    const std::string member = Rule(fmt::format(R"(string ":" room {} room)", made));
    return fmt::format(R"("{{" room ({0} ("," room {0})*)? "}}")", member);
  }

  const json::value& root_;
  std::vector<std::pair<std::string, std::string>> rules_;
  std::map<std::string, std::string> references_;
  size_t bytes_ = 0;
  uint64_t unrolled_ = 0;
  int depth_ = 0;
};

}  // namespace

Result<std::string> SchemaGrammar(std::string_view schema) {
  json::error_code error;
  const json::value root = json::parse(schema, error);
  if (error) return Fail(Code::kInvalid, "the JSON schema is no JSON: {}", error.message());
  return Builder(root).Build();
}

}  // namespace inferscale
