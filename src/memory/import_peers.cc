#include "memory/import_peers.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "memory/fold.h"
#include "memory/import_json.h"
#include "memory/json_time.h"

namespace inferscale {
namespace {

namespace json = boost::json;

constexpr int64_t kDayMs = 86'400'000;
constexpr std::string_view kNotSaid = "messages that nobody said";

bool SaysSomething(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return false;
    case json::kind::bool_:
      return value.get_bool();
    case json::kind::string:
      return !value.get_string().empty();
    case json::kind::array:
      return !value.get_array().empty();
    case json::kind::object:
      return !value.get_object().empty();
    default:
      return true;
  }
}

// Only names as programs choose them are told: the file may use anything for a name.
bool IsPlainName(std::string_view name) {
  constexpr size_t kMaxBytes = 32;
  return !name.empty() && name.size() <= kMaxBytes &&
         std::ranges::all_of(name, [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
}

// Takes the facts of a file, and what is left of it.
class Keeper {
 public:
  explicit Keeper(const ImportSink& sink) : sink_(sink) {}

  // False if there is none, which is said.
  bool Keep(Result<Fact> fact, std::string_view place) {
    if (fact) {
      facts_.push_back(*std::move(fact));
      return true;
    }
    sink_.bad(Error{Code::kInvalid, fmt::format("{}: {}", place, fact.error().message)});
    return false;
  }
  void Drop(std::string_view what, uint64_t count = 1) {
    if (sink_.dropped && count > 0) sink_.dropped(what, count);
  }

  Status Finish() {
    std::ranges::stable_sort(facts_, {}, &Fact::when_ms);
    for (Fact& fact : facts_) INFERSCALE_TRY(sink_.fact(std::move(fact)));
    return {};
  }

 private:
  const ImportSink& sink_;
  std::vector<Fact> facts_;
};

// An object of the file. What it was asked for counts as kept.
class Item {
 public:
  explicit Item(const json::object& object) : object_(object) {}

  using Names = std::initializer_list<std::string_view>;
  const json::value* Find(Names names) {
    asked_.insert(names.begin(), names.end());
    return FirstOf(object_, names);
  }
  Status Text(Names names, std::string& out) {
    asked_.insert(names.begin(), names.end());
    return ReadText(object_, names, out);
  }
  Status Time(Names names, std::optional<int64_t>& out) {
    const json::value* value = Find(names);
    if (value == nullptr) return {};
    const auto time = TimeFromJson(*value);
    if (!time) return Fail(Code::kInvalid, "{} is {}", *names.begin(), time.error().message);
    out = *time;
    return {};
  }
  // The object's own, and beside it what `notes` names in the file, under the second name.
  Status Metadata(std::initializer_list<std::pair<std::string_view, std::string_view>> notes,
                  std::string& out) {
    json::object metadata;
    if (const json::value* own = Find({"metadata", "metadata_"})) {
      if (!own->is_object()) return Fail(Code::kInvalid, "metadata is not a JSON object");
      metadata = own->get_object();
    }
    for (const auto& [name, under] : notes) {
      const json::value* value = Find({name});
      if (value != nullptr && SaysSomething(*value)) metadata.emplace(under, *value);
    }
    if (!metadata.empty()) out = json::serialize(metadata);
    return {};
  }

  void DropRest(Keeper& keeper) const {
    for (const auto& [name, value] : object_) {
      if (asked_.contains(name) || !SaysSomething(value)) continue;
      keeper.Drop(IsPlainName(name) ? std::string_view(name) : "other fields");
    }
  }

 private:
  const json::object& object_;
  std::set<std::string_view> asked_;
};

Result<json::value> ParseWhole(std::string_view content) {
  if (const size_t at = FindInvalidUtf8(content); at != std::string_view::npos) {
    return Fail(Code::kInvalid, "not UTF-8 at byte {}", at);
  }
  boost::system::error_code failed;
  json::value root = json::parse(content, failed);
  if (failed) return Fail(Code::kInvalid, "not JSON: {}", failed.message());
  return root;
}

// Calls `each` with every object of a list and its place ("memory 3"); other values are bad.
template <typename Each>
void ForEachObject(const json::array& list, std::string_view kind, Keeper& keeper,
                   const Each& each) {
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string place = fmt::format("{} {}", kind, i + 1);
    if (const json::object* object = list[i].if_object()) {
      each(*object, place);
    } else {
      keeper.Keep(Fail(Code::kInvalid, "not a JSON object"), place);
    }
  }
}

Status NeedsText(const std::string& text, std::string_view name) {
  if (!IsBlank(text)) return {};
  return Fail(Code::kInvalid, "it has no {}", name);
}

// ---- Mem0 ---------------------------------------------------------------------------------------

Result<Fact> ReadMem0(Item& item, const Fact& defaults) {
  Fact fact = defaults;
  INFERSCALE_TRY(item.Text({"memory", "text", "data"}, fact.text));
  INFERSCALE_TRY(NeedsText(fact.text, "memory"));
  INFERSCALE_TRY(item.Text({"user_id"}, fact.scope.user));
  INFERSCALE_TRY(item.Text({"agent_id"}, fact.scope.agent));
  INFERSCALE_TRY(item.Text({"run_id"}, fact.scope.run));
  INFERSCALE_TRY(item.Text({"actor_id"}, fact.speaker));
  INFERSCALE_TRY(item.Time({"said_at", "created_at"}, fact.when_ms));
  INFERSCALE_TRY(item.Time({"expiration_date"}, fact.expires_ms));
  if (fact.expires_ms) *fact.expires_ms += kDayMs;  // it lives through that day
  INFERSCALE_TRY(item.Metadata({{"id", "mem0_id"},
                                {"categories", "categories"},
                                {"app_id", "app_id"},
                                {"immutable", "immutable"}},
                               fact.metadata));
  return fact;
}

// ---- Zep ----------------------------------------------------------------------------------------

bool IsSaidByRole(std::string_view role) {
  return role != "system" && role != "developer" && role != "tool" && role != "function";
}

Result<Fact> ReadZepFact(Item& item, const Fact& defaults) {
  Fact fact = defaults;
  INFERSCALE_TRY(item.Text({"fact"}, fact.text));
  INFERSCALE_TRY(NeedsText(fact.text, "fact"));
  INFERSCALE_TRY(item.Text({"user_id"}, fact.scope.user));
  INFERSCALE_TRY(item.Time({"valid_at", "created_at"}, fact.when_ms));
  std::optional<int64_t> expired;
  INFERSCALE_TRY(item.Time({"invalid_at"}, fact.expires_ms));
  INFERSCALE_TRY(item.Time({"expired_at"}, expired));
  if (expired) fact.expires_ms = std::min(*expired, fact.expires_ms.value_or(*expired));
  INFERSCALE_TRY(item.Metadata(
      {{"uuid", "zep_id"}, {"name", "relation"}, {"attributes", "attributes"}}, fact.metadata));
  return fact;
}

Result<Fact> ReadZepMessage(Item& item, const Fact& defaults) {
  Fact fact = defaults;
  INFERSCALE_TRY(item.Text({"content"}, fact.text));
  INFERSCALE_TRY(NeedsText(fact.text, "content"));
  // In older ones `role` is the name, and `role_type` what is `role` now.
  INFERSCALE_TRY(item.Text({"name", "role", "role_type"}, fact.speaker));
  INFERSCALE_TRY(item.Time({"reference_time", "created_at"}, fact.when_ms));
  INFERSCALE_TRY(item.Metadata({{"uuid", "zep_id"}}, fact.metadata));
  return fact;
}

class ZepReader {
 public:
  explicit ZepReader(Keeper& keeper) : keeper_(keeper) {}

  // True if something of Zep's was in it.
  bool Read(const json::value& value, const Fact& defaults, const std::string& place) {
    if (const json::object* object = value.if_object()) return ReadObject(*object, defaults, place);
    const json::array* list = value.if_array();
    if (list == nullptr) return false;
    bool found = list->empty();
    for (size_t i = 0; i < list->size(); ++i) {
      const std::string here = fmt::format("{} {}", place, i + 1);
      if (Read((*list)[i], defaults, here)) {
        found = true;
      } else {
        keeper_.Keep(Fail(Code::kInvalid, "neither a message nor a fact"), here);
      }
    }
    return found;
  }

 private:
  bool ReadObject(const json::object& object, const Fact& defaults, const std::string& place) {
    Item item(object);
    if (object.contains("fact")) {
      if (keeper_.Keep(ReadZepFact(item, defaults), place)) item.DropRest(keeper_);
      return true;
    }
    if (object.contains("content")) {
      ReadMessage(object, item, defaults, place);
      return true;
    }
    return ReadHolder(item, defaults, place);
  }

  void ReadMessage(const json::object& object, Item& item, const Fact& defaults,
                   const std::string& place) {
    std::string role;
    const Status read = ReadText(object, {"role_type", "role"}, role);
    if (read && !IsSaidByRole(role)) {
      keeper_.Drop(kNotSaid);
      return;
    }
    if (keeper_.Keep(ReadZepMessage(item, defaults), place)) item.DropRest(keeper_);
  }

  // A thread, a page, or a file with several of them.
  bool ReadHolder(Item& item, const Fact& defaults, const std::string& place) {
    Fact inner = defaults;
    const Status who = item.Text({"user_id"}, inner.scope.user);
    const Status where = item.Text({"thread_id", "session_id", "thread_uuid"}, inner.scope.run);
    if (!who || !where) {
      keeper_.Keep(tl::unexpected(who ? where.error() : who.error()), place);
      return true;
    }
    constexpr std::pair<std::string_view, std::string_view> kLists[] = {
        {"threads", "thread"},   {"sessions", "session"}, {"messages", "message"},
        {"episodes", "episode"}, {"edges", "fact"},       {"facts", "fact"},
        {"items", "item"},       {"data", "item"},        {"results", "item"}};
    bool found = false;
    for (const auto& [name, kind] : kLists) {
      const json::value* list = item.Find({name});
      if (list == nullptr || !list->is_array()) continue;
      found = true;
      const bool outermost = place.empty();
      Read(*list, inner, outermost ? std::string(kind) : fmt::format("{}, {}", place, kind));
    }
    if (found) item.DropRest(keeper_);
    return found;
  }

  Keeper& keeper_;
};

// ---- Letta --------------------------------------------------------------------------------------

Result<Fact> ReadPassage(Item& item, const Fact& defaults) {
  Fact fact = defaults;
  INFERSCALE_TRY(item.Text({"text"}, fact.text));
  INFERSCALE_TRY(NeedsText(fact.text, "text"));
  INFERSCALE_TRY(item.Text({"agent_id"}, fact.scope.agent));
  INFERSCALE_TRY(item.Time({"created_at"}, fact.when_ms));
  INFERSCALE_TRY(item.Metadata({{"id", "letta_id"}, {"tags", "tags"}}, fact.metadata));
  return fact;
}

// A text, or a list of parts of which some are text.
std::string TextOfContent(const json::value* content) {
  if (content == nullptr) return "";
  if (const json::string* text = content->if_string()) return std::string(*text);
  std::string out;
  const json::array* parts = content->if_array();
  if (parts == nullptr) return out;
  for (const json::value& part : *parts) {
    const json::object* object = part.if_object();
    const json::value* text = object != nullptr ? object->if_contains("text") : nullptr;
    if (text == nullptr || !text->is_string()) continue;
    if (!out.empty()) out += ' ';
    out += std::string_view(text->get_string());
  }
  return out;
}

std::optional<json::object> ObjectIn(std::string_view text) {
  boost::system::error_code failed;
  json::value value = json::parse(text, failed);
  if (failed || !value.is_object()) return std::nullopt;
  return std::move(value.get_object());
}

std::string TextIn(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
}

// What an agent says to its user is the argument of a tool, and beside it stands what it thinks.
std::optional<std::string> SaidByTool(const json::array& calls) {
  for (const json::value& call : calls) {
    const json::object* object = call.if_object();
    const json::value* function = object != nullptr ? object->if_contains("function") : nullptr;
    if (function == nullptr || !function->is_object()) continue;
    if (TextIn(function->get_object(), "name") != "send_message") continue;
    if (const auto arguments = ObjectIn(TextIn(function->get_object(), "arguments"))) {
      return TextIn(*arguments, "message");
    }
  }
  return std::nullopt;
}

// Nothing for messages that are between the agent and its machinery.
std::optional<std::string> SaidInLetta(const json::object& message) {
  const std::string role = TextIn(message, "role");
  std::string text = TextOfContent(FirstOf(message, {"content", "text"}));
  if (role == "user") {
    // Events come as messages of the user's too, wrapped as the user's own words may be.
    const auto wrapped = ObjectIn(text);
    if (!wrapped || !wrapped->contains("type")) return text;
    if (TextIn(*wrapped, "type") != "user_message") return std::nullopt;
    return TextIn(*wrapped, "message");
  }
  if (role != "assistant") return std::nullopt;
  const json::value* calls = FirstOf(message, {"tool_calls"});
  if (calls != nullptr && calls->is_array() && !calls->get_array().empty()) {
    return SaidByTool(calls->get_array());
  }
  return text;
}

class LettaReader {
 public:
  LettaReader(const Fact& defaults, Keeper& keeper) : defaults_(defaults), keeper_(keeper) {}

  bool Read(const json::value& root) {
    if (const json::array* list = root.if_array()) {
      bool found = list->empty();
      ForEachObject(*list, "item", keeper_, [&](const json::object& object, const auto& place) {
        found |= ReadOne(object, place);
      });
      return found;
    }
    if (!root.is_object()) return false;
    const json::object& object = root.get_object();
    if (object.contains("agents")) return ReadAgentFile(object);
    if (object.contains("core_memory")) {
      ReadAgent(object, "agent");
      return true;
    }
    Item item(object);
    bool found = false;
    for (const std::string_view name : {"passages", "blocks"}) {
      const json::value* list = item.Find({name});
      if (list == nullptr || !list->is_array()) continue;
      Read(*list);
      found = true;
    }
    if (found) item.DropRest(keeper_);
    return found;
  }

 private:
  // A passage or a block.
  bool ReadOne(const json::object& object, const std::string& place) {
    Item item(object);
    if (object.contains("value")) {
      ReadBlock(item, defaults_, place);
    } else if (object.contains("text")) {
      if (keeper_.Keep(ReadPassage(item, defaults_), place)) item.DropRest(keeper_);
    } else {
      keeper_.Keep(Fail(Code::kInvalid, "neither a passage nor a block"), place);
      return false;
    }
    return true;
  }

  bool ReadAgentFile(const json::object& file) {
    Item item(file);
    const json::value* agents = item.Find({"agents"});
    if (!agents->is_array()) return false;
    std::map<std::string, std::string> owners;  // of blocks; of several agents': nobody's
    ForEachObject(agents->get_array(), "agent", keeper_, [&](const auto& agent, const auto& place) {
      for (const std::string& block : ReadAgent(agent, place)) {
        const auto [owner, is_new] = owners.try_emplace(block, TextIn(agent, "name"));
        if (!is_new) owner->second.clear();
      }
    });
    const json::value* blocks = item.Find({"blocks"});
    if (blocks != nullptr && blocks->is_array()) {
      ForEachObject(blocks->get_array(), "block", keeper_,
                    [&](const json::object& block, const auto& place) {
                      Fact defaults = defaults_;
                      const auto owner = owners.find(TextIn(block, "id"));
                      if (owner != owners.end() && !owner->second.empty()) {
                        defaults.scope.agent = owner->second;
                      }
                      Item source(block);
                      ReadBlock(source, defaults, place);
                    });
    }
    // Of the whole file, and so of nothing in it.
    (void)item.Find({"metadata", "created_at"});
    for (const std::string_view name : {"tools", "files", "sources", "groups", "mcp_servers"}) {
      const json::value* list = item.Find({name});
      if (list != nullptr && list->is_array()) keeper_.Drop(name, list->get_array().size());
    }
    item.DropRest(keeper_);
    return true;
  }

  // Its messages, and blocks that it holds itself. Returns the ids of the others. What else there
  // is to an agent, its settings, is no memory.
  std::vector<std::string> ReadAgent(const json::object& agent, const std::string& place) {
    Fact defaults = defaults_;
    if (std::string name = TextIn(agent, "name"); !name.empty()) {
      defaults.scope.agent = std::move(name);
    }
    if (const json::value* blocks = FirstOf(agent, {"core_memory"});
        blocks != nullptr && blocks->is_array()) {
      ForEachObject(blocks->get_array(), place + ", block", keeper_,
                    [&](const json::object& block, const std::string& where) {
                      Item item(block);
                      ReadBlock(item, defaults, where);
                    });
    }
    if (const json::value* messages = FirstOf(agent, {"messages"});
        messages != nullptr && messages->is_array()) {
      ForEachObject(messages->get_array(), place + ", message", keeper_,
                    [&](const json::object& message, const std::string& where) {
                      ReadMessage(message, defaults, where);
                    });
    }
    std::vector<std::string> ids;
    const json::value* held = FirstOf(agent, {"block_ids"});
    if (held == nullptr || !held->is_array()) return ids;
    for (const json::value& id : held->get_array()) {
      if (id.is_string()) ids.emplace_back(id.get_string());
    }
    return ids;
  }

  void ReadMessage(const json::object& message, const Fact& defaults, const std::string& place) {
    const auto said = SaidInLetta(message);
    if (!said || IsBlank(*said)) {
      keeper_.Drop(kNotSaid);
      return;
    }
    Fact fact = defaults;
    fact.text = *said;
    Item item(message);
    Status read = item.Text({"name", "role"}, fact.speaker);
    if (read) read = item.Time({"created_at"}, fact.when_ms);
    if (read) {
      keeper_.Keep(std::move(fact), place);
    } else {
      keeper_.Keep(tl::unexpected(read.error()), place);
    }
  }

  void ReadBlock(Item& item, const Fact& defaults, const std::string& place) {
    Fact fact = defaults;
    std::string text;
    Status read = item.Text({"value"}, text);
    if (read) read = item.Metadata({{"label", "letta_block"}}, fact.metadata);
    if (!read) {
      keeper_.Keep(tl::unexpected(read.error()), place);
      return;
    }
    (void)item.Find({"id"});
    item.DropRest(keeper_);
    for (std::string_view rest = text; !rest.empty();) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      fact.text = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (!IsBlank(fact.text)) keeper_.Keep(Fact(fact), place);
    }
  }

  const Fact& defaults_;
  Keeper& keeper_;
};

}  // namespace

Status ParseMem0(std::string_view content, const Fact& defaults, const ImportSink& sink) {
  INFERSCALE_ASSIGN(const json::value root, ParseWhole(content));
  Keeper keeper(sink);
  const json::value* list = &root;
  if (const json::object* page = root.if_object()) {
    Item item(*page);
    list = item.Find({"results", "memories"});
    (void)item.Find({"count", "next", "previous", "total"});
    item.DropRest(keeper);
  }
  if (list == nullptr || !list->is_array()) {
    return Fail(Code::kInvalid, "neither a list of memories nor an object with \"results\"");
  }
  ForEachObject(list->get_array(), "memory", keeper,
                [&](const json::object& memory, const std::string& place) {
                  Item item(memory);
                  if (keeper.Keep(ReadMem0(item, defaults), place)) item.DropRest(keeper);
                });
  return keeper.Finish();
}

Status ParseZep(std::string_view content, const Fact& defaults, const ImportSink& sink) {
  INFERSCALE_ASSIGN(const json::value root, ParseWhole(content));
  Keeper keeper(sink);
  if (!ZepReader(keeper).Read(root, defaults, root.is_array() ? "item" : "")) {
    return Fail(Code::kInvalid, "no messages and no facts of Zep's are in it");
  }
  return keeper.Finish();
}

Status ParseLetta(std::string_view content, const Fact& defaults, const ImportSink& sink) {
  INFERSCALE_ASSIGN(const json::value root, ParseWhole(content));
  Keeper keeper(sink);
  if (!LettaReader(defaults, keeper).Read(root)) {
    return Fail(Code::kInvalid,
                "neither an agent file of Letta's nor a list of passages or blocks");
  }
  return keeper.Finish();
}

}  // namespace inferscale
