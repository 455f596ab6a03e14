#include "engine/schema_grammar.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "base/llama_runtime.h"
#include "engine/llama/handles.h"

namespace inferscale {
namespace {

using ::testing::HasSubstr;

// What the grammar takes is asked of libllama, token by token of a real vocabulary.
class SchemaGrammarTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    InitLlamaRuntime();
    llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    const char* path = std::getenv("INFERSCALE_MODEL");
    ASSERT_NE(path, nullptr);
    model_.reset(llama_model_load_from_file(path, params));
    ASSERT_NE(model_, nullptr);
  }
  static void TearDownTestSuite() { model_.reset(); }

  static bool Takes(const std::string& schema, const std::string& text) {
    const auto grammar = SchemaGrammar(schema);
    EXPECT_TRUE(grammar) << schema << ": " << (grammar ? "" : grammar.error().message);
    if (!grammar) return false;
    const llama_vocab* vocab = llama_model_get_vocab(model_.get());
    const LlamaSamplerPtr machine(llama_sampler_init_grammar(vocab, grammar->c_str(), "root"));
    EXPECT_NE(machine, nullptr) << *grammar;
    if (machine == nullptr) return false;
    std::vector<llama_token> tokens(text.size() + 1);
    tokens.resize(static_cast<size_t>(
        llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                       static_cast<int32_t>(tokens.size()), false, false)));
    tokens.push_back(llama_vocab_eos(vocab));
    for (const llama_token token : tokens) {
      llama_token_data one{token, 0.0F, 0.0F};
      llama_token_data_array array{&one, 1, -1, false};
      llama_sampler_apply(machine.get(), &array);
      if (!std::isfinite(one.logit)) return false;
      if (token != tokens.back()) llama_sampler_accept(machine.get(), token);
    }
    return true;
  }
  static void Check(const std::string& schema, const std::vector<std::string>& taken,
                    const std::vector<std::string>& refused) {
    for (const std::string& text : taken) EXPECT_TRUE(Takes(schema, text)) << schema << text;
    for (const std::string& text : refused) EXPECT_FALSE(Takes(schema, text)) << schema << text;
  }

  static inline LlamaModelPtr model_;
};

TEST_F(SchemaGrammarTest, Types) {
  Check(R"({"type": "string"})", {R"("a")", R"("\"\u00e9 é")"}, {"a", "1", "null", R"("a)"});
  Check(R"({"type": "integer"})", {"0", "-12"}, {"1.5", "01", R"("1")"});
  Check(R"({"type": "number"})", {"0", "-1.5e3"}, {".5", "true"});
  Check(R"({"type": "boolean"})", {"true", "false"}, {"null", "True"});
  Check(R"({"type": ["string", "null"]})", {R"("a")", "null"}, {"1"});
  Check("{}", {"1", R"({"a": [null]})"}, {"a"});
  Check("true", {"1"}, {"a"});
}

TEST_F(SchemaGrammarTest, ObjectsInTheSchemasOrder) {
  const std::string all = R"({"type": "object", "properties": {"a": {"type": "integer"},
      "b\"c": {"type": "null"}, "d": true}, "required": ["a", "b\"c", "d"]})";
  Check(all, {R"({"a": 1, "b\"c": null, "d": [2]})", R"({"a":1,"b\"c":null,"d":{}})"},
        {R"({"a": 1})", R"({"b\"c": null, "a": 1, "d": 0})",
         R"({"a": 1, "b\"c": null, "d": 0, "e": 0})", "{}"});
  const std::string some = R"({"properties": {"a": {"type": "integer"}, "b": {"type": "integer"},
      "c": {"type": "integer"}, "d": {"type": "integer"}}, "required": ["c"]})";
  Check(some,
        {R"({"c": 1})", R"({"a": 1, "c": 1})", R"({"b": 1, "c": 1, "d": 1})",
         R"({"a": 1, "b": 1, "c": 1, "d": 1})"},
        {"{}", R"({"a": 1})", R"({"a": 1, "b": 1})", R"({,"c": 1})", R"({"c": 1,})"});
  Check(R"({"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}})",
        {"{}", R"({"a": 1})", R"({"b": 1})", R"({"a": 1, "b": 2})"}, {R"({"a": 1,})", "[]"});
  Check(R"({"type": "object"})", {"{}", R"({"x": [1]})"}, {"[]"});
  Check(R"({"type": "object", "additionalProperties": false})", {"{}"}, {R"({"x": 1})"});
  Check(R"({"type": "object", "additionalProperties": {"type": "integer"}})",
        {"{}", R"({"x": 1, "y": 2})"}, {R"({"x": "1"})"});
  Check(R"({"type": "object", "required": ["x"]})", {R"({"x": [1]})"}, {"{}"});
}

TEST_F(SchemaGrammarTest, ArraysAndLengths) {
  Check(R"({"items": {"type": "integer"}})", {"[]", "[1]", "[1, 2,3]"}, {"[1,]", R"(["a"])", "1"});
  Check(R"({"type": "array", "minItems": 2, "maxItems": 3, "items": {"type": "integer"}})",
        {"[1, 2]", "[1, 2, 3]"}, {"[]", "[1]", "[1, 2, 3, 4]"});
  Check(R"({"type": "array", "maxItems": 1})", {"[]", "[{}]"}, {"[1, 2]"});
  Check(R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"});
  Check(R"({"type": "array", "minItems": 1})", {"[1]", "[1, 2]"}, {"[]"});
  Check(R"({"type": "string", "minLength": 2, "maxLength": 3})", {R"("ab")", R"("\né!")"},
        {R"("a")", R"("abcd")"});
  Check(R"({"type": "string", "minLength": 2})", {R"("abcdef")"}, {R"("")"});
}

TEST_F(SchemaGrammarTest, ValuesChoicesAndFormats) {
  Check(R"({"enum": ["red", 2, null, {"a": 1}]})", {R"("red")", "2", "null", R"({"a":1})"},
        {R"("blue")", "red"});
  Check(R"({"type": "string", "enum": ["red", null]})", {R"("red")"}, {"null"});
  Check(R"({"const": 2, "enum": [1, 2], "type": "integer"})", {"2"}, {"1"});
  Check(R"({"const": "a\\b"})", {R"("a\\b")"}, {R"("a")"});
  Check(R"({"anyOf": [{"type": "integer"}, {"type": "string"}]})", {"1", R"("a")"}, {"null"});
  Check(R"({"allOf": [{"type": "integer"}], "description": "x", "default": 1})", {"1"}, {"null"});
  Check(R"({"type": "string", "format": "date"})",
        {R"("2025-01-31")", R"("2024-02-29")", R"("2025-11-30")"},
        {R"("2025-13-01")", R"("2025-02-30")", R"("2025-11-31")", R"("2025-00-10")", R"("today")"});
  Check(R"({"type": "string", "format": "date-time"})", {R"("2025-01-31T23:59:00Z")"},
        {R"("2025-01-31")", R"("2025-01-31T24:00:00Z")"});
  Check(R"({"type": "string", "format": "uuid"})", {R"("01234567-89ab-cdef-0123-456789abcdef")"},
        {R"("0123")"});
}

TEST_F(SchemaGrammarTest, IntegersBetweenLimits) {
  const unsigned seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 40; ++round) {
    const int size = round % 2 == 0 ? 30 : 20000;
    std::uniform_int_distribution<int> some(-size, size);
    const int low = some(random);
    const int high = low + std::uniform_int_distribution<int>(0, size)(random);
    const bool open = round % 5 == 4;  // without an upper limit
    const std::string schema = fmt::format(
        R"({{"type": "integer", "{}": {}{}}})", round % 3 == 0 ? "exclusiveMinimum" : "minimum",
        round % 3 == 0 ? low - 1 : low, open ? "" : fmt::format(R"(, "maximum": {})", high));
    std::vector<int> tried = {low - 1, low, low + 1, high - 1, high, high + 1, 0, -1, 1, 10 * high};
    for (int i = 0; i < 10; ++i) tried.push_back(some(random));
    for (const int number : tried) {
      EXPECT_EQ(Takes(schema, std::to_string(number)), number >= low && (open || number <= high))
          << schema << number;
    }
  }
  Check(R"({"type": "integer", "minimum": 1, "maximum": 5})", {"1", "5"}, {"0", "6", "01", "1.0"});
  Check(R"({"type": ["integer", "null"], "minimum": 0})", {"0", "999999999999999", "null"},
        {"-1", "00", "1000000000000000"});
}

TEST_F(SchemaGrammarTest, ReferencesMayNameThemselves) {
  const std::string tree = R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object",
      "properties": {"name": {"type": "string"}, "children": {"type": "array",
      "items": {"$ref": "#/$defs/node"}}}, "required": ["name"]}}})";
  Check(tree, {R"({"name": "a"})", R"({"name": "a", "children": [{"name": "b", "children": []}]})"},
        {R"({"name": "a", "children": [1]})"});
  Check(R"({"properties": {"next": {"$ref": "#"}}})", {"{}", R"({"next": {"next": {}}})"},
        {R"({"next": 1})"});
}

TEST(SchemaGrammar, SaysWhatItDoesNotUnderstand) {
  const auto fails = [](std::string_view schema, Code code, std::string_view word) {
    const auto grammar = SchemaGrammar(schema);
    ASSERT_FALSE(grammar) << schema;
    EXPECT_EQ(grammar.error().code, code) << schema;
    EXPECT_THAT(grammar.error().message, HasSubstr(word)) << schema;
  };
  fails(R"({"type": "number", "minimum": 1})", Code::kUnsupported, "'minimum'");
  fails(R"({"enum": [1, 2], "maximum": 1})", Code::kUnsupported, "'maximum'");
  fails(R"({"enum": ["a", "bc"], "minLength": 2})", Code::kUnsupported, "'minLength'");
  fails(R"({"const": "a", "type": "string", "format": "date"})", Code::kUnsupported, "'format'");
  fails(R"({"type": "integer", "minimum": 1.5})", Code::kInvalid, "whole number");
  fails(R"({"type": "integer", "minimum": 2, "maximum": 1})", Code::kInvalid, "'minimum'");
  for (const std::string word : {"pattern", "minimum", "oneOf", "prefixItems", "not"}) {
    fails(R"({"items": {")" + word + R"(": 1}})", Code::kUnsupported, "'" + word + "'");
  }
  fails(R"({"type": "string", "format": "email"})", Code::kUnsupported, "format \"email\"");
  fails(R"({"type": "array", "uniqueItems": true})", Code::kUnsupported, "'uniqueItems'");
  fails(R"({"anyOf": [{}], "type": "string"})", Code::kUnsupported, "'type' beside 'anyOf'");
  fails(R"({"anyOf": [{}], "minLength": 2})", Code::kUnsupported, "'minLength' beside 'anyOf'");
  fails(R"({"$ref": "#", "maximum": 2})", Code::kUnsupported, "'maximum' beside '$ref'");
  fails(R"({"allOf": [{}, {}]})", Code::kUnsupported, "'allOf of several'");
  fails(R"({"type": "array", "maxItems": 100000})", Code::kUnsupported, "above 1000");
  fails("false", Code::kUnsupported, "'false'");
  fails(R"({"type": "text"})", Code::kInvalid, "'type'");
  fails(R"({"type": "array", "minItems": 2, "maxItems": 1})", Code::kInvalid, "'minItems'");
  fails(R"({"type": "array", "minItems": -1})", Code::kInvalid, "'minItems'");
  fails(R"({"$ref": "#/nowhere"})", Code::kInvalid, "#/nowhere");
  fails(R"({"$ref": "http://x"})", Code::kInvalid, "http://x");
  fails(R"({"properties": {"a": 1}})", Code::kInvalid, "integer");
  fails(R"({"enum": []})", Code::kInvalid, "no value");
  fails(R"({"enum": [1, 2], "const": 3})", Code::kInvalid, "no value");
  fails("[]", Code::kInvalid, "array");
  fails("{", Code::kInvalid, "no JSON");
  std::string long_ones = R"({"type": "string", "maxLength": 1000})";
  for (int i = 0; i < 5; ++i) long_ones = R"({"anyOf": [)" + long_ones + "," + long_ones + "]}";
  fails(long_ones, Code::kUnsupported, "too large");
  std::string deep = "true";
  for (int i = 0; i < 30; ++i) deep = R"({"items": )" + deep + "}";
  EXPECT_TRUE(SchemaGrammar(deep));
  // Each definition names the next one twice: small as a schema, large if it were written out.
  std::string wide = R"({"$ref": "#/$defs/0", "$defs": {)";
  for (int i = 0; i < 100; ++i) {
    wide +=
        fmt::format(R"("{}": {{"anyOf": [{{"$ref": "#/$defs/{}"}}, {{"$ref": "#/$defs/{}"}}]}},)",
                    i, i + 1, i + 1);
  }
  const auto made = SchemaGrammar(wide + R"("100": {"type": "null"}}})");
  EXPECT_TRUE(!made || made->size() < 100000);
}

}  // namespace
}  // namespace inferscale
