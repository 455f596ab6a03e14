#include "memory/filter.h"

#include <algorithm>
#include <boost/json.hpp>
#include <boost/system/error_code.hpp>
#include <compare>
#include <optional>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "memory/fold.h"
#include "memory/json_time.h"

namespace inferscale {
namespace {

namespace json = boost::json;

constexpr size_t kMaxTextBytes = 64 * 1024;
constexpr int kMaxNesting = 16;

enum class Op : uint8_t { kEq, kGt, kGte, kLt, kLte, kIn, kContains, kIcontains };

struct OpName {
  std::string_view name;
  Op op;
  bool negated;
};
constexpr OpName kOps[] = {
    {"eq", Op::kEq, false},
    {"ne", Op::kEq, true},
    {"gt", Op::kGt, false},
    {"gte", Op::kGte, false},
    {"lt", Op::kLt, false},
    {"lte", Op::kLte, false},
    {"in", Op::kIn, false},
    {"nin", Op::kIn, true},
    {"contains", Op::kContains, false},
    {"icontains", Op::kIcontains, false},
};

enum class Field : uint8_t {
  kUser,
  kAgent,
  kRun,
  kId,
  kSpeaker,
  kText,
  kCreated,
  kUpdated,
  kExpires,
  kWhen,
  kMetadata
};

struct FieldName {
  std::string_view name;
  Field field;
};
constexpr FieldName kFields[] = {
    {"user_id", Field::kUser},       {"agent_id", Field::kAgent},
    {"run_id", Field::kRun},         {"id", Field::kId},
    {"speaker", Field::kSpeaker},    {"text", Field::kText},
    {"created_at", Field::kCreated}, {"updated_at", Field::kUpdated},
    {"expires_at", Field::kExpires}, {"when", Field::kWhen},
};

bool IsTime(Field field) {
  return field == Field::kCreated || field == Field::kUpdated || field == Field::kExpires ||
         field == Field::kWhen;
}

// A fact as tests see it. The metadata is parsed when the first test asks for it.
class FactFields {
 public:
  explicit FactFields(const Fact& fact) : fact_(fact) {}

  // Calls `use` with a pointer to the field's value, or nullptr if the fact has none.
  template <typename Use>
  bool With(Field field, const std::vector<std::string>& path, const Use& use) {
    if (field == Field::kMetadata) return use(Metadata(path));
    const json::value value = BuiltIn(field);
    return use(value.is_null() ? nullptr : &value);
  }

 private:
  static json::value Text(const std::string& text) {
    return text.empty() ? json::value() : json::value(text);
  }
  static json::value Time(const std::optional<int64_t>& ms) {
    return ms ? json::value(*ms) : json::value();
  }

  json::value BuiltIn(Field field) const {
    switch (field) {
      case Field::kUser:
        return Text(fact_.scope.user);
      case Field::kAgent:
        return Text(fact_.scope.agent);
      case Field::kRun:
        return Text(fact_.scope.run);
      case Field::kId:
        return Text(fact_.id);
      case Field::kSpeaker:
        return Text(fact_.speaker);
      case Field::kText:
        return Text(fact_.text);
      case Field::kCreated:
        return Time(fact_.created_ms);
      case Field::kUpdated:
        return Time(fact_.updated_ms);
      case Field::kExpires:
        return Time(fact_.expires_ms);
      case Field::kWhen:
        return Time(fact_.when_ms);
      case Field::kMetadata:
        break;
    }
    return {};
  }

  const json::value* Metadata(const std::vector<std::string>& path) {
    if (!metadata_) {
      boost::system::error_code failed;
      metadata_ = json::parse(fact_.metadata, failed);
      if (failed) metadata_ = nullptr;
    }
    const json::value* value = &*metadata_;
    for (const std::string& name : path) {
      const json::object* object = value->if_object();
      value = object != nullptr ? object->if_contains(name) : nullptr;
      if (value == nullptr || value->is_null()) return nullptr;
    }
    return value;
  }

  const Fact& fact_;
  std::optional<json::value> metadata_;
};

// Unordered if the two are of different types.
std::partial_ordering Compare(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_int64() && b.is_int64()) return a.get_int64() <=> b.get_int64();
    if (a.is_uint64() && b.is_uint64()) return a.get_uint64() <=> b.get_uint64();
    return a.to_number<double>() <=> b.to_number<double>();
  }
  if (a.is_string() && b.is_string()) {
    return std::string_view(a.get_string()) <=> std::string_view(b.get_string());
  }
  return std::partial_ordering::unordered;
}

bool Equal(const json::value& a, const json::value& b) { return Compare(a, b) == 0 || a == b; }

// A list in the metadata stands for each of its elements.
bool AnyEqual(const json::value& field, const json::value& wanted) {
  if (Equal(field, wanted)) return true;
  const json::array* list = field.if_array();
  return list != nullptr &&
         std::ranges::any_of(*list, [&](const auto& element) { return Equal(element, wanted); });
}

bool TestEq(const json::value* field, const json::value& wanted) {
  if (wanted.is_null()) return field == nullptr;
  if (field == nullptr) return false;
  return (wanted.is_string() && wanted.get_string() == "*") || AnyEqual(*field, wanted);
}

bool TestContains(const json::value& field, const json::value& wanted) {
  if (field.is_string() && wanted.is_string()) {
    return std::string_view(field.get_string()).find(wanted.get_string()) != std::string_view::npos;
  }
  return field.is_array() && AnyEqual(field, wanted);
}

// `wanted` is a text with folded case.
bool TestIcontains(const json::value& field, const json::value& wanted) {
  if (field.is_string()) return TestContains(json::value(FoldCase(field.get_string())), wanted);
  const json::array* list = field.if_array();
  return list != nullptr && std::ranges::any_of(*list, [&](const auto& element) {
           return element.is_string() && FoldCase(element.get_string()) == wanted.get_string();
         });
}

bool Test(Op op, const json::value* field, const json::value& wanted) {
  if (op == Op::kEq) return TestEq(field, wanted);
  if (op == Op::kIn) {
    return std::ranges::any_of(wanted.get_array(),
                               [&](const auto& one) { return TestEq(field, one); });
  }
  if (field == nullptr) return false;
  switch (op) {
    case Op::kGt:
      return Compare(*field, wanted) > 0;
    case Op::kGte:
      return Compare(*field, wanted) >= 0;
    case Op::kLt:
      return Compare(*field, wanted) < 0;
    case Op::kLte:
      return Compare(*field, wanted) <= 0;
    case Op::kContains:
      return TestContains(*field, wanted);
    case Op::kIcontains:
      return TestIcontains(*field, wanted);
    case Op::kEq:
    case Op::kIn:
      break;
  }
  return false;
}

}  // namespace

struct Filter::Node {
  enum class Kind : uint8_t { kAll, kAny, kNone, kTest };

  Kind kind = Kind::kAll;
  std::vector<Node> children;  // of the first three

  // Of a test.
  Field field = Field::kMetadata;
  std::vector<std::string> path;  // into the metadata
  Op op = Op::kEq;
  bool negated = false;
  json::value wanted;

  bool Passes(FactFields& fact) const {
    const auto passes = [&](const Node& child) { return child.Passes(fact); };
    switch (kind) {
      case Kind::kAll:
        return std::ranges::all_of(children, passes);
      case Kind::kAny:
        return std::ranges::any_of(children, passes);
      case Kind::kNone:
        return std::ranges::none_of(children, passes);
      case Kind::kTest:
        break;
    }
    return negated != fact.With(field, path,
                                [&](const json::value* value) { return Test(op, value, wanted); });
  }
};

namespace {

using Node = Filter::Node;

std::string Shortened(std::string_view key) {
  constexpr size_t kMax = 64;
  if (key.size() <= kMax) return std::string(key);
  key = key.substr(0, kMax);
  return std::string(key.substr(0, CompleteUtf8Prefix(key))) + "...";
}

std::vector<std::string> SplitPath(std::string_view key) {
  std::vector<std::string> path;
  for (;;) {
    const size_t dot = key.find('.');
    path.emplace_back(key.substr(0, dot));
    if (dot == std::string_view::npos) return path;
    key.remove_prefix(dot + 1);
  }
}

Result<json::value> TimeOperand(Op op, const json::value& given) {
  if (op == Op::kContains || op == Op::kIcontains) {
    return Fail(Code::kInvalid, "a time does not contain anything");
  }
  if (given.is_null() || (given.is_string() && given.get_string() == "*")) return given;
  INFERSCALE_ASSIGN(const int64_t ms, TimeFromJson(given));
  return json::value(ms);
}

Result<json::value> Operand(Field field, Op op, const json::value& given) {
  if (op == Op::kIn) {
    if (!given.is_array()) return Fail(Code::kInvalid, "in and nin need a list");
    json::array list;
    for (const json::value& one : given.get_array()) {
      INFERSCALE_ASSIGN(json::value operand, Operand(field, Op::kEq, one));
      list.push_back(std::move(operand));
    }
    return json::value(std::move(list));
  }
  if (IsTime(field)) return TimeOperand(op, given);
  if (op == Op::kIcontains) {
    if (!given.is_string()) return Fail(Code::kInvalid, "icontains needs a text");
    return json::value(FoldCase(given.get_string()));
  }
  return given;
}

Result<Node> MakeTest(std::string_view key, const OpName& op, const json::value& given) {
  Node node;
  node.kind = Node::Kind::kTest;
  const auto* known = std::ranges::find(kFields, key, &FieldName::name);
  if (known != std::end(kFields)) {
    node.field = known->field;
  } else {
    node.path = SplitPath(key);
  }
  node.op = op.op;
  node.negated = op.negated;
  INFERSCALE_ASSIGN(node.wanted, Operand(node.field, op.op, given));
  return node;
}

// {"created_at": {"gte": ..., "lt": ...}} or {"category": "work"}
Status AddTests(std::string_view key, const json::value& value, std::vector<Node>& out) {
  const json::object* operators = value.if_object();
  if (operators == nullptr) {
    INFERSCALE_ASSIGN(Node test, MakeTest(key, kOps[0], value));
    out.push_back(std::move(test));
    return {};
  }
  if (operators->empty()) return Fail(Code::kInvalid, "no operator");
  for (const auto& [name, operand] : *operators) {
    const auto* op = std::ranges::find(kOps, std::string_view(name), &OpName::name);
    if (op == std::end(kOps)) {
      return Fail(Code::kInvalid, "unknown operator \"{}\"", Shortened(name));
    }
    INFERSCALE_ASSIGN(Node test, MakeTest(key, *op, operand));
    out.push_back(std::move(test));
  }
  return {};
}

std::optional<Node::Kind> GroupKind(std::string_view key) {
  if (key == "AND") return Node::Kind::kAll;
  if (key == "OR") return Node::Kind::kAny;
  if (key == "NOT") return Node::Kind::kNone;
  return std::nullopt;
}

Result<Node> ParseObject(const json::value& value, int nesting);

// The list (or the single object) behind AND, OR or NOT.
Result<Node> ParseGroup(Node::Kind kind, const json::value& value, int nesting) {
  Node group;
  group.kind = kind;
  const json::array* list = value.if_array();
  const size_t count = list != nullptr ? list->size() : 1;
  for (size_t i = 0; i < count; ++i) {
    auto child = ParseObject(list != nullptr ? (*list)[i] : value, nesting + 1);
    if (!child) return Wrap(child.error(), fmt::format("[{}]", i));
    group.children.push_back(*std::move(child));
  }
  return group;
}

Result<Node> ParseObject(const json::value& value, int nesting) {
  if (nesting > kMaxNesting) {
    return Fail(Code::kInvalid, "nested more than {} levels deep", kMaxNesting);
  }
  const json::object* object = value.if_object();
  if (object == nullptr) return Fail(Code::kInvalid, "not a JSON object");
  Node all;
  for (const auto& [key, inner] : *object) {
    if (const auto kind = GroupKind(key)) {
      auto group = ParseGroup(*kind, inner, nesting);
      if (!group) return Wrap(group.error(), key);
      all.children.push_back(*std::move(group));
    } else if (auto added = AddTests(key, inner, all.children); !added) {
      return Wrap(added.error(), Shortened(key));
    }
  }
  return all;
}

}  // namespace

Filter::Filter() = default;
Filter::~Filter() = default;
Filter::Filter(Filter&&) noexcept = default;
Filter& Filter::operator=(Filter&&) noexcept = default;

Result<Filter> Filter::Parse(std::string_view text) {
  Filter filter;
  if (text.empty()) return filter;
  if (text.size() > kMaxTextBytes) {
    return Fail(Code::kInvalid, "filter: {} bytes, more than the {} allowed", text.size(),
                kMaxTextBytes);
  }
  json::parse_options options;
  options.max_depth = 4 * kMaxNesting;  // an AND and its list are two levels of JSON
  boost::system::error_code failed;
  const json::value value = json::parse(text, failed, {}, options);
  if (failed) return Fail(Code::kInvalid, "filter: not JSON: {}", failed.message());
  auto root = ParseObject(value, 0);
  if (!root) return Wrap(root.error(), "filter");
  if (!root->children.empty()) filter.root_ = std::make_unique<Node>(*std::move(root));
  return filter;
}

bool Filter::Matches(const Fact& fact) const {
  if (root_ == nullptr) return true;
  FactFields fields(fact);
  return root_->Passes(fields);
}

}  // namespace inferscale
