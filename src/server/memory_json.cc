#include "server/memory_json.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "base/hash.h"
#include "memory/json_time.h"
#include "server/json_members.h"
#include "server/json_route.h"

namespace inferscale {
namespace {

namespace json = boost::json;

constexpr size_t kMaxMessages = 1000;
constexpr size_t kMaxBatch = 1000;
constexpr int64_t kMaxTopK = 1000;
constexpr int64_t kDayMs = 86'400'000;
constexpr std::string_view kIds[] = {"user_id", "agent_id", "run_id"};

json::object One(std::string_view name, json::value value) {
  json::object object;
  object.emplace(json::string_view(name.data(), name.size()), std::move(value));
  return object;
}

std::string* IdOf(Scope& scope, std::string_view key) {
  if (key == "user_id") return &scope.user;
  if (key == "agent_id") return &scope.agent;
  return key == "run_id" ? &scope.run : nullptr;
}

// "2024-05-08": a fact lives through the whole of that day, in UTC.
Result<int64_t> ParseExpiry(const json::value& value) {
  const json::string* text = value.if_string();
  const bool iso = text != nullptr && text->size() == 10 && (*text)[4] == '-' && (*text)[7] == '-';
  const auto day = iso ? TimeFromJson(value) : Result<int64_t>(-1);
  if (!day || *day < 0) {
    return Fail(Code::kInvalid, "'expiration_date' must be a day as YYYY-MM-DD");
  }
  return *day + kDayMs;
}

std::string DayText(int64_t unix_ms) { return TimeText(unix_ms).substr(0, 10); }

// ---- adding ------------------------------------------------------------------------------------

Status ReadAddIds(const Members& root, Scope& scope) {
  const auto read = [&](const Members& members) -> Status {
    for (const std::string_view key : kIds) {
      INFERSCALE_TRY(members.Text(key, *IdOf(scope, key)));
    }
    if (members.Find("app_id") != nullptr) {
      return Fail(Code::kUnsupported, "'app_id' is not kept; metadata may hold it");
    }
    return {};
  };
  if (const json::value* filters = root.Find("filters")) {
    if (!filters->is_object()) return root.Wrong("filters", "an object");
    INFERSCALE_TRY(read(Members(filters->get_object(), "filters.")));
  }
  INFERSCALE_TRY(read(root));
  if (scope.user.empty() && scope.agent.empty() && scope.run.empty()) {
    return Fail(Code::kInvalid, "At least one identifier (user_id, agent_id, run_id) is required.");
  }
  return {};
}

Status ReadFact(const Members& root, int64_t now_ms, Fact& fact) {
  if (const json::value* metadata = root.Find("metadata")) {
    if (!metadata->is_object()) return root.Wrong("metadata", "an object");
    fact.metadata = json::serialize(*metadata);
  }
  if (const json::value* expiry = root.Find("expiration_date")) {
    INFERSCALE_ASSIGN(fact.expires_ms, ParseExpiry(*expiry));
    if (*fact.expires_ms <= now_ms) {
      return Fail(Code::kInvalid, "'expiration_date' lies in the past");
    }
  }
  fact.when_ms = now_ms;
  if (const json::value* time = root.Find("timestamp")) {
    auto when = TimeFromJson(*time);
    if (!when) return root.Wrong("timestamp", "Unix seconds or an ISO 8601 time");
    fact.when_ms = *when;
  }
  return {};
}

// The speaker is the one who is named, or the role.
Result<std::optional<Fact>> ReadMessage(const json::value& value, const Fact& common) {
  const json::object* object = value.if_object();
  if (object == nullptr) return Fail(Code::kInvalid, "a message must be an object");
  const Members message(*object, "messages[].");
  std::string role = "user";
  INFERSCALE_TRY(message.Text("role", role));
  if (role == "system" || role == "developer") return std::nullopt;
  Fact fact = common;
  INFERSCALE_ASSIGN(fact.text, ReadContent(object->if_contains("content")));
  if (fact.text.empty()) return message.Wrong("content", "a text that is not empty");
  if (!role.empty() && role[0] >= 'a' && role[0] <= 'z') {
    role[0] = static_cast<char>(role[0] - 'a' + 'A');
  }
  fact.speaker = role;
  INFERSCALE_TRY(message.Text("name", fact.speaker));
  return std::optional<Fact>(std::move(fact));
}

// ---- filters -----------------------------------------------------------------------------------

// {"metadata": {"a": 1}} means {"a": 1}.
json::value Flattened(const json::value& filter) {
  if (const json::array* list = filter.if_array()) {
    json::array out;
    for (const json::value& one : *list) out.push_back(Flattened(one));
    return out;
  }
  const json::object* object = filter.if_object();
  if (object == nullptr) return filter;
  json::object out;
  for (const auto& [key, value] : *object) {
    if (key == "AND" || key == "OR" || key == "NOT") {
      out[key] = Flattened(value);
    } else if (key == "metadata" && value.is_object()) {
      for (const auto& [name, wanted] : value.get_object()) out[name] = wanted;
    } else {
      out[key] = value;
    }
  }
  return out;
}

using Names = std::optional<std::set<std::string>>;  // nullopt: any

Names NamesOfTest(const json::value& test) {
  if (const json::string* text = test.if_string()) {
    if (*text == "*") return std::nullopt;
    return std::set<std::string>{std::string(*text)};
  }
  const json::object* operators = test.if_object();
  if (operators == nullptr) return std::nullopt;
  if (const json::value* equal = operators->if_contains("eq")) return NamesOfTest(*equal);
  const json::value* in = operators->if_contains("in");
  if (in == nullptr || !in->is_array()) return std::nullopt;
  std::set<std::string> names;
  for (const json::value& one : in->get_array()) {
    const Names name = one.is_string() ? NamesOfTest(one) : std::nullopt;
    if (!name) return std::nullopt;
    names.insert(name->begin(), name->end());
  }
  return names;
}

// The only values of `key` that a fact which passes can have.
Names NamesIn(const json::value& filter, std::string_view key) {
  const json::object* object = filter.if_object();
  if (object == nullptr) return std::nullopt;
  Names names;
  const auto narrow = [&](const Names& more) {
    if (!more) return;
    if (!names) {
      names = more;
    } else {
      std::erase_if(*names, [&](const std::string& name) { return !more->contains(name); });
    }
  };
  for (const auto& [name, value] : *object) {
    const json::array single = {value};
    const json::array& list = value.is_array() ? value.get_array() : single;
    if (name == "AND") {
      for (const json::value& one : list) narrow(NamesIn(one, key));
    } else if (name == "OR") {
      Names any = std::set<std::string>();
      for (const json::value& one : list) {
        const Names some = NamesIn(one, key);
        if (any && some) any->insert(some->begin(), some->end());
        if (!some) any = std::nullopt;
      }
      narrow(any);
    } else if (std::string_view(name) == key) {
      narrow(NamesOfTest(value));
    }
  }
  return names;
}

Result<MemoryWhere> MakeWhere(json::array all, const std::string& tenant) {
  MemoryWhere where;
  where.scope.tenant = tenant;
  const json::value filter = One("AND", std::move(all));
  INFERSCALE_ASSIGN(where.filter, Filter::Parse(json::serialize(filter)));
  if (const Names users = NamesIn(filter, "user_id")) {
    where.users.emplace(users->begin(), users->end());
  }
  for (const std::string_view key : {kIds[1], kIds[2]}) {
    const Names names = NamesIn(filter, key);
    if (names && names->size() == 1) *IdOf(where.scope, key) = *names->begin();
  }
  return where;
}

// A bound of the time of creation; a day counts whole.
Status AddBound(const Members& root, std::string_view key, bool is_end, json::array& all) {
  const json::value* value = root.Find(key);
  if (value == nullptr) return {};
  const auto time = TimeFromJson(*value);
  if (!time) return root.Wrong(key, "an ISO 8601 time");
  const bool day = is_end && value->is_string() && value->get_string().size() == 10;
  const std::string_view op = !is_end ? "gte" : day ? "lt" : "lte";
  all.push_back(One("created_at", One(op, json::value(TimeText(*time + (day ? kDayMs : 0))))));
  return {};
}

Result<MemoryWhere> ReadWhere(const Members& root, const std::string& tenant) {
  json::array all;
  if (const json::value* filters = root.Find("filters")) {
    if (!filters->is_object()) return root.Wrong("filters", "an object");
    if (!filters->get_object().empty()) all.push_back(Flattened(*filters));
  }
  for (const std::string_view key : kIds) {
    std::string id;
    INFERSCALE_TRY(root.Text(key, id));
    if (!id.empty()) all.push_back(One(key, json::value(id)));
  }
  if (const json::value* metadata = root.Find("metadata")) {
    if (!metadata->is_object()) return root.Wrong("metadata", "an object");
    if (!metadata->get_object().empty()) all.push_back(*metadata);
  }
  if (const json::value* categories = root.Find("categories")) {
    if (!categories->is_array()) return root.Wrong("categories", "a list");
    if (!categories->get_array().empty()) {
      json::array any;
      for (const json::value& one : categories->get_array()) {
        any.push_back(One("categories", One("contains", one)));
      }
      all.push_back(One("OR", std::move(any)));
    }
  }
  INFERSCALE_TRY(AddBound(root, "start_date", /*is_end=*/false, all));
  INFERSCALE_TRY(AddBound(root, "end_date", /*is_end=*/true, all));
  return MakeWhere(std::move(all), tenant);
}

// ---- changing ----------------------------------------------------------------------------------

Result<MemoryUpdate> ReadUpdate(const json::object& object, std::string_view name) {
  const Members members(object, name);
  MemoryUpdate out;
  INFERSCALE_TRY(members.Text("memory_id", out.id));
  if (members.Find("text") != nullptr) {
    INFERSCALE_TRY(members.Text("text", out.update.text.emplace()));
  }
  if (const json::value* metadata = members.Find("metadata")) {
    if (!metadata->is_object()) return members.Wrong("metadata", "an object");
    out.metadata = metadata->get_object();
  }
  if (const json::value* time = members.Find("timestamp")) {
    const auto when = TimeFromJson(*time);
    if (!when) return members.Wrong("timestamp", "Unix seconds or an ISO 8601 time");
    out.update.when_ms = *when;
  }
  if (const json::value* expiry = object.if_contains("expiration_date")) {
    out.update.expires_ms.emplace(std::nullopt);
    if (!expiry->is_null()) {
      INFERSCALE_ASSIGN(*out.update.expires_ms, ParseExpiry(*expiry));
    }
  }
  if (!out.update.text && !out.metadata && !out.update.when_ms && !out.update.expires_ms) {
    return Fail(Code::kInvalid,
                "nothing to change: text, metadata, timestamp or expiration_date is needed");
  }
  return out;
}

Result<json::array> ReadBatch(std::string_view body) {
  INFERSCALE_ASSIGN(json::object object, ParseBody(body));
  const Members root(object, "");
  const json::value* memories = root.Find("memories");
  if (memories == nullptr || !memories->is_array() || memories->get_array().empty() ||
      memories->get_array().size() > kMaxBatch) {
    return root.Wrong("memories", fmt::format("a list of 1 to {} objects", kMaxBatch));
  }
  for (const json::value& one : memories->get_array()) {
    const json::value* id = one.is_object() ? one.get_object().if_contains("memory_id") : nullptr;
    if (id == nullptr || !id->is_string() || id->get_string().empty()) {
      return root.Wrong("memories", "a list of objects with a memory_id");
    }
  }
  return memories->get_array();
}

json::value TextOrNull(const std::string& text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}

}  // namespace

Result<MemoryAdd> ParseMemoryAdd(std::string_view body, const std::string& tenant, int64_t now_ms) {
  INFERSCALE_ASSIGN(const json::object object, ParseBody(body));
  const Members root(object, "");
  MemoryAdd add;
  INFERSCALE_TRY(root.Bool("infer", add.infer));
  INFERSCALE_TRY(root.Bool("async_mode", add.later));
  std::string type;
  INFERSCALE_TRY(root.Text("memory_type", type));
  if (!type.empty()) return Fail(Code::kUnsupported, "'memory_type' is not supported");
  Fact common;
  common.scope.tenant = tenant;
  INFERSCALE_TRY(ReadAddIds(root, common.scope));
  INFERSCALE_TRY(ReadFact(root, now_ms, common));
  const json::value* messages = root.Find("messages");
  if (messages == nullptr) return root.Wrong("messages", "a list, an object or a text");
  json::array list;
  if (messages->is_array()) {
    list = messages->get_array();
  } else if (messages->is_object()) {
    list.push_back(*messages);
  } else {
    list.push_back(json::object{{"role", "user"}, {"content", *messages}});
  }
  if (list.empty() || list.size() > kMaxMessages) {
    return root.Wrong("messages", fmt::format("1 to {} messages", kMaxMessages));
  }
  for (const json::value& message : list) {
    INFERSCALE_ASSIGN(std::optional<Fact> fact, ReadMessage(message, common));
    if (fact) add.messages.push_back(*std::move(fact));
  }
  return add;
}

Result<MemorySearch> ParseMemorySearch(std::string_view body, const std::string& tenant) {
  INFERSCALE_ASSIGN(const json::object object, ParseBody(body));
  const Members root(object, "");
  MemorySearch search;
  INFERSCALE_TRY(root.Text("query", search.query));
  if (search.query.empty()) return root.Wrong("query", "a text that is not empty");
  INFERSCALE_TRY(root.Integer("limit", 0, kMaxTopK, search.top_k));
  INFERSCALE_TRY(root.Integer("top_k", 0, kMaxTopK, search.top_k));
  if (root.Find("threshold") != nullptr) {
    INFERSCALE_TRY(root.Number("threshold", -1, 1, search.threshold.emplace()));
  }
  INFERSCALE_TRY(root.Bool("explain", search.explain));
  INFERSCALE_ASSIGN(search.where, ReadWhere(root, tenant));
  return search;
}

Result<MemoryWhere> ParseMemoryWhere(std::string_view body, const std::string& tenant) {
  INFERSCALE_ASSIGN(const json::object object, ParseBody(body));
  return ReadWhere(Members(object, ""), tenant);
}

Result<MemoryWhere> ParseMemoryWhere(const QueryParams& query, const std::string& tenant) {
  json::array all;
  for (const std::string_view key : kIds) {
    const auto id = query.Find(key);
    if (id && !id->empty()) all.push_back(One(key, json::value(*id)));
  }
  return MakeWhere(std::move(all), tenant);
}

Result<Scope> ParseDeleteScope(const QueryParams& query, const std::string& tenant) {
  Scope scope;
  scope.tenant = tenant;
  for (const auto& [name, value] : query.all()) {
    std::string* id = IdOf(scope, name);
    if (id == nullptr) {
      return Fail(Code::kInvalid, "only user_id, agent_id and run_id can say what to delete");
    }
    if (value.empty() || value == "*") {
      return Fail(Code::kInvalid, "'{}' must name one; POST /reset deletes everything", name);
    }
    *id = value;
  }
  if (query.all().empty()) {
    return Fail(Code::kInvalid, "At least one identifier (user_id, agent_id, run_id) is required.");
  }
  return scope;
}

Result<MemoryUpdate> ParseMemoryUpdate(std::string_view body) {
  INFERSCALE_ASSIGN(const json::object object, ParseBody(body));
  return ReadUpdate(object, "");
}

Result<std::vector<MemoryUpdate>> ParseBatchUpdate(std::string_view body) {
  INFERSCALE_ASSIGN(const json::array batch, ReadBatch(body));
  std::vector<MemoryUpdate> updates;
  for (const json::value& one : batch) {
    INFERSCALE_ASSIGN(MemoryUpdate update, ReadUpdate(one.get_object(), "memories[]."));
    updates.push_back(std::move(update));
  }
  return updates;
}

Result<std::vector<std::string>> ParseBatchDelete(std::string_view body) {
  INFERSCALE_ASSIGN(const json::array batch, ReadBatch(body));
  std::vector<std::string> ids;
  for (const json::value& one : batch) {
    ids.emplace_back(one.get_object().at("memory_id").get_string());
  }
  return ids;
}

std::string MergeMetadata(const std::string& metadata, const json::object& changes) {
  boost::system::error_code failed;
  json::value merged = json::parse(metadata, failed);
  if (failed || !merged.is_object()) merged = json::object();
  for (const auto& [name, value] : changes) {
    if (value.is_null()) {
      merged.get_object().erase(name);
    } else {
      merged.get_object()[name] = value;
    }
  }
  return json::serialize(merged);
}

json::object MemoryToJson(const Fact& fact) {
  boost::system::error_code failed;
  json::value metadata = json::parse(fact.metadata, failed);
  if (failed) metadata = json::object();
  return {
      {"id", fact.id},
      {"memory", fact.text},
      {"user_id", TextOrNull(fact.scope.user)},
      {"agent_id", TextOrNull(fact.scope.agent)},
      {"run_id", TextOrNull(fact.scope.run)},
      {"actor_id", TextOrNull(fact.speaker)},
      {"hash", HashBytes(AsBytes(fact.text)).Hex()},
      {"metadata", std::move(metadata)},
      {"said_at", fact.when_ms ? json::value(TimeText(*fact.when_ms)) : nullptr},
      {"expiration_date", fact.expires_ms ? json::value(DayText(*fact.expires_ms - 1)) : nullptr},
      {"created_at", TimeText(fact.created_ms)},
      {"updated_at", TimeText(fact.updated_ms)},
      {"version", fact.version}};
}

json::object HistoryToJson(const HistoryEntry& entry, size_t index) {
  const bool gone = entry.event == "DELETE" || entry.event == "EXPIRE";
  return {{"id", fmt::format("{}-{}", entry.fact_id, index)},
          {"memory_id", entry.fact_id},
          {"old_memory", TextOrNull(entry.old_text)},
          {"new_memory", TextOrNull(entry.new_text)},
          {"event", entry.event},
          {"created_at", TimeText(entry.at_ms)},
          {"updated_at", TimeText(entry.at_ms)},
          {"is_deleted", gone},
          {"version", entry.version}};
}

}  // namespace inferscale
