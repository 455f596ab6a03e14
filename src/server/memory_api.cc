#include "server/memory_api.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "server/errors.h"
#include "server/json_route.h"
#include "server/keys.h"
#include "server/memory_json.h"
#include "server/memory_schemas.h"

namespace inferscale {
namespace {

namespace json = boost::json;

// More users than these are not searched for one question: each has an index of its own.
constexpr size_t kMostUsers = 1000;
constexpr size_t kDefaultPage = 100;
constexpr size_t kMostPage = 1000;

tl::unexpected<Error> NoMemory() {
  return Fail(Code::kNotFound, "there is no memory with this id");
}

// What is gone from where, of how many facts. Until the data directory is compacted the bytes of
// files that are only appended to are still there, but nothing refers to them.
json::object ErasedToJson(const Erased& erased) {
  return {{"text", erased.facts},
          {"vector", erased.facts},
          {"history", erased.facts},
          {"kv_records", erased.kv_records},
          {"kv_pending", erased.kv_left}};
}

json::value Deleted(std::string_view message, const Erased& erased) {
  return json::object{{"message", message}, {"erased", ErasedToJson(erased)}};
}

class MemoryApi : public std::enable_shared_from_this<MemoryApi> {
 public:
  MemoryApi(App& app, const Clock& clock, AddQueue* queue)
      : app_(app), clock_(clock), queue_(queue) {}

  Result<json::value> Add(const Call& call) {
    INFERSCALE_ASSIGN(MemoryAdd add,
                      ParseMemoryAdd(call.request.body, call.caller.tenant, clock_.NowMs()));
    if (add.later && queue_ != nullptr && !add.messages.empty()) return AddLater(std::move(add));
    INFERSCALE_ASSIGN(json::array results, add.infer ? Infer(add.messages) : Keep(add.messages));
    return json::object{{"results", std::move(results)}, {"status", "SUCCEEDED"}};
  }

  // GET /v1/event/{id}
  Result<json::value> Event(const Call& call) {
    INFERSCALE_ASSIGN(const AddEventInfo event, queue_->Find(call.caller.tenant, call.params[0]));
    const auto time = [](const std::optional<int64_t>& ms) {
      return ms ? json::value(TimeText(*ms)) : json::value(nullptr);
    };
    return json::object{
        {"id", event.id},
        {"event_id", event.id},
        {"event_type", "ADD"},
        {"status", AddStateName(event.state)},
        {"results", event.results},
        {"error", event.error.empty() ? json::value(nullptr) : json::value(event.error)},
        {"created_at", time(event.created_ms)},
        {"started_at", time(event.started_ms)},
        {"completed_at", time(event.ended_ms)}};
  }

  Result<json::value> Search(const Call& call) {
    INFERSCALE_ASSIGN(const MemorySearch search,
                      ParseMemorySearch(call.request.body, call.caller.tenant));
    INFERSCALE_ASSIGN(const std::vector<std::string> users, UsersOf(search.where));
    if (users.size() > kMostUsers) {
      return Fail(Code::kUnsupported, "this would search {} users; name at most {} by user_id",
                  users.size(), kMostUsers);
    }
    INFERSCALE_ASSIGN(const auto found, app_.SearchUsers(search.where.scope, users, search.query,
                                                         search.top_k, &search.where.filter));
    json::array results;
    for (const SearchResult& result : found) {
      if (search.threshold && result.hit.cosine < *search.threshold) continue;
      json::object item = MemoryToJson(result.fact);
      item["score"] = result.hit.cosine;
      if (search.explain) {
        item["score_details"] = {{"semantic", result.hit.cosine},
                                 {"bm25", result.hit.bm25},
                                 {"fused", result.hit.score}};
      }
      results.push_back(std::move(item));
    }
    return json::object{{"results", std::move(results)}};
  }

  // GET /memories
  Result<json::value> List(const Call& call) {
    INFERSCALE_ASSIGN(const MemoryWhere where, ParseMemoryWhere(call.query, call.caller.tenant));
    INFERSCALE_ASSIGN(const size_t limit,
                      NumberParam(call.query, "top_k", 0, kMostPage, kDefaultPage));
    INFERSCALE_ASSIGN(json::array results, Page(where, limit, 0));
    return json::object{{"results", std::move(results)}};
  }

  // POST /v3/memories/
  Result<json::value> ListPage(const Call& call) {
    INFERSCALE_ASSIGN(const MemoryWhere where,
                      ParseMemoryWhere(call.request.body, call.caller.tenant));
    INFERSCALE_ASSIGN(const size_t page, NumberParam(call.query, "page", 1, 1'000'000, 1));
    INFERSCALE_ASSIGN(const size_t size,
                      NumberParam(call.query, "page_size", 1, kMostPage, kDefaultPage));
    INFERSCALE_ASSIGN(json::array results, Page(where, size, (page - 1) * size));
    INFERSCALE_ASSIGN(const size_t count, app_.facts().Count(QueryOf(where)));
    const auto link = [&](size_t number) -> json::value {
      return json::string(fmt::format("/v3/memories/?page={}&page_size={}", number, size));
    };
    return json::object{{"count", count},
                        {"next", page * size < count ? link(page + 1) : nullptr},
                        {"previous", page > 1 ? link(page - 1) : nullptr},
                        {"results", std::move(results)}};
  }

  Result<json::value> Get(const Call& call) {
    const auto fact = app_.facts().Get(call.caller.tenant, call.params[0]);
    if (!fact && fact.error().code == Code::kNotFound) return NoMemory();
    if (!fact) return tl::unexpected(fact.error());
    return MemoryToJson(*fact);
  }

  Result<json::value> Update(const Call& call) {
    INFERSCALE_ASSIGN(MemoryUpdate update, ParseMemoryUpdate(call.request.body));
    update.id = call.params[0];
    INFERSCALE_ASSIGN(const Fact fact, Apply(call.caller.tenant, std::move(update)));
    json::object out = MemoryToJson(fact);
    out["message"] = "Memory updated successfully!";
    return out;
  }

  Result<json::value> Delete(const Call& call) {
    INFERSCALE_ASSIGN(const Erased erased, app_.Delete(call.caller.tenant, call.params));
    if (erased.facts == 0) return NoMemory();
    return Deleted("Memory deleted successfully", erased);
  }

  Result<json::value> DeleteAll(const Call& call) {
    INFERSCALE_ASSIGN(const Scope scope, ParseDeleteScope(call.query, call.caller.tenant));
    INFERSCALE_ASSIGN(const Erased erased, DeleteScope(scope));
    return Deleted("All relevant memories deleted", erased);
  }

  Result<json::value> Reset(const Call& call) {
    INFERSCALE_ASSIGN(const Erased erased, DeleteScope({call.caller.tenant, {}, {}, {}}));
    return Deleted("All memories reset", erased);
  }

  Result<json::value> History(const Call& call) {
    const auto entries = app_.facts().History(call.caller.tenant, call.params[0]);
    if (!entries && entries.error().code == Code::kNotFound) return NoMemory();
    if (!entries) return tl::unexpected(entries.error());
    json::array out;
    for (const HistoryEntry& entry : *entries) out.push_back(HistoryToJson(entry, out.size()));
    return out;
  }

  Result<json::value> Entities(const Call& call) {
    INFERSCALE_ASSIGN(const auto entities, app_.facts().Entities(call.caller.tenant));
    json::array out;
    for (const FactStore::Entity& entity : entities) {
      out.push_back({{"id", entity.name},
                     {"name", entity.name},
                     {"type", entity.type},
                     {"total_memories", entity.facts},
                     {"created_at", TimeText(entity.created_ms)},
                     {"updated_at", TimeText(entity.updated_ms)}});
    }
    return out;
  }

  // The same as the client expects it.
  Result<json::value> EntitiesPage(const Call& call) {
    INFERSCALE_ASSIGN(json::value entities, Entities(call));
    const size_t count = entities.get_array().size();
    return json::object{{"count", count},
                        {"next", nullptr},
                        {"previous", nullptr},
                        {"results", std::move(entities)}};
  }

  Result<json::value> DeleteEntity(const Call& call) {
    Scope scope{call.caller.tenant, {}, {}, {}};
    const std::string& type = call.params[0];
    if (type == "user") {
      scope.user = call.params[1];
    } else if (type == "agent") {
      scope.agent = call.params[1];
    } else if (type == "run") {
      scope.run = call.params[1];
    } else {
      return Fail(Code::kNotFound, "entities are of type user, agent or run");
    }
    // Nothing left is no error: a client that deletes one entity after the other may have deleted
    // the facts of this one with those of another.
    INFERSCALE_ASSIGN(const Erased erased, DeleteScope(scope));
    return Deleted("Entity deleted successfully!", erased);
  }

  Result<json::value> BatchUpdate(const Call& call) {
    INFERSCALE_ASSIGN(std::vector<MemoryUpdate> updates, ParseBatchUpdate(call.request.body));
    std::vector<std::string> ids;
    ids.reserve(updates.size());
    for (const MemoryUpdate& update : updates) ids.push_back(update.id);
    INFERSCALE_TRY(CheckAllThere(call.caller.tenant, ids));
    const size_t count = updates.size();
    for (MemoryUpdate& update : updates) {
      INFERSCALE_TRY(Apply(call.caller.tenant, std::move(update)));
    }
    return json::object{{"message", fmt::format("Successfully updated {} memories", count)}};
  }

  Result<json::value> BatchDelete(const Call& call) {
    INFERSCALE_ASSIGN(const std::vector<std::string> ids, ParseBatchDelete(call.request.body));
    INFERSCALE_TRY(CheckAllThere(call.caller.tenant, ids));
    INFERSCALE_ASSIGN(const Erased erased, app_.Delete(call.caller.tenant, ids));
    return Deleted(fmt::format("Successfully deleted {} memories", erased.facts), erased);
  }

 private:
  Result<Erased> DeleteScope(const Scope& scope) {
    if (queue_ != nullptr) queue_->Drop(scope);
    return app_.DeleteScope(scope);
  }

  Result<json::value> AddLater(MemoryAdd add) {
    const Scope scope = add.messages.front().scope;
    // The queue may outlive the routes.
    const auto work = [self = shared_from_this(), add = std::move(add)]() -> Result<json::array> {
      INFERSCALE_ASSIGN(json::array results,
                        add.infer ? self->Infer(add.messages) : self->Keep(add.messages));
      // It is remembered for a while, when what it says may be deleted.
      for (json::value& result : results) {
        for (const char* text : {"memory", "previous_memory", "actor_id"}) {
          result.get_object().erase(text);
        }
      }
      return results;
    };
    INFERSCALE_ASSIGN(const AddEventInfo event, queue_->Put(scope, work));
    return json::object{{"results", json::array()},
                        {"event_id", event.id},
                        {"status", AddStateName(AddState::kPending)}};
  }

  Result<json::array> Keep(const std::vector<Fact>& facts) {
    INFERSCALE_ASSIGN(const std::vector<AddResult> added, app_.Add(facts));
    json::array results;
    for (size_t i = 0; i < added.size(); ++i) {
      results.push_back({{"id", added[i].id},
                         {"memory", facts[i].text},
                         {"actor_id", facts[i].speaker},
                         {"event", added[i].event == AddEvent::kAdded ? "ADD" : "NONE"}});
    }
    return results;
  }

  Result<json::array> Infer(const std::vector<Fact>& messages) {
    INFERSCALE_ASSIGN(const std::vector<InferredFact> inferred, app_.AddInferred(messages));
    json::array results;
    for (const InferredFact& one : inferred) {
      json::object result = {{"id", one.fact.id}, {"memory", one.fact.text}};
      switch (one.event) {
        case InferEvent::kAdded:
          result["event"] = "ADD";
          break;
        case InferEvent::kUpdated:
          result["event"] = "UPDATE";
          result["previous_memory"] = one.previous;
          break;
        case InferEvent::kDuplicate:
          result["event"] = "NONE";
          break;
      }
      results.push_back(std::move(result));
    }
    return results;
  }

  static ListQuery QueryOf(const MemoryWhere& where) {
    ListQuery query{.scope = where.scope, .filter = &where.filter, .newest_first = true};
    // Of several the filter chooses.
    if (where.users && where.users->size() == 1) query.scope.user = where.users->front();
    return query;
  }

  Result<json::array> Page(const MemoryWhere& where, size_t limit, size_t offset) {
    ListQuery query = QueryOf(where);
    query.limit = limit;
    query.offset = offset;
    INFERSCALE_ASSIGN(const std::vector<Fact> facts, app_.facts().List(query));
    json::array out;
    for (const Fact& fact : facts) out.push_back(MemoryToJson(fact));
    return out;
  }

  Result<std::vector<std::string>> UsersOf(const MemoryWhere& where) {
    if (where.users) return *where.users;
    return app_.facts().Users(where.scope);
  }

  // Nothing of a batch is done if a part of it can't be.
  Status CheckAllThere(const std::string& tenant, const std::vector<std::string>& ids) {
    size_t missing = 0;
    for (const std::string& id : ids) {
      const auto fact = app_.facts().Get(tenant, id);
      if (!fact && fact.error().code != Code::kNotFound) return tl::unexpected(fact.error());
      if (!fact) ++missing;
    }
    if (missing == 0) return {};
    return Fail(Code::kNotFound, "{} of {} memories are not there; nothing was changed", missing,
                ids.size());
  }

  Result<Fact> Apply(const std::string& tenant, MemoryUpdate update) {
    auto before = app_.facts().Get(tenant, update.id);
    if (!before && before.error().code == Code::kNotFound) return NoMemory();
    if (!before) return before;
    if (update.metadata) {
      update.update.metadata = MergeMetadata(before->metadata, *update.metadata);
    }
    return app_.Update(tenant, update.id, update.update);
  }

  App& app_;
  const Clock& clock_;
  AddQueue* const queue_;
};

// What Mem0's client can call and its hosted service answers.
std::vector<Route> NotOffered() {
  constexpr std::pair<const char*, const char*> kRoutes[] = {
      {"POST", "/v1/exports"},
      {"POST", "/v1/exports/get"},
      {"POST", "/v1/summary"},
      {"POST", "/v1/feedback"},
      {"GET", "/v2/entities/user/{name}/profile"},
      {"POST", "/v2/profiles/jobs"},
      {"GET", "/v2/profiles/jobs/{id}"},
      {"GET", "/v2/profiles/settings"},
      {"POST", "/v2/profiles/settings"},
      {"GET", "/api/v1/webhooks/projects/{id}"},
      {"POST", "/api/v1/webhooks/projects/{id}"},
      {"PUT", "/api/v1/webhooks/{id}"},
      {"DELETE", "/api/v1/webhooks/{id}"},
  };
  std::vector<Route> routes;
  for (const auto& [method, path] : kRoutes) {
    routes.push_back({method,
                      path,
                      Access::kRead,
                      "Not offered: 501",
                      [](const Call&, HttpResponder& responder) {
                        responder.Send(ErrorAnswer(501, "InferScale does not offer this"));
                      },
                      {},
                      /*quiet=*/false,
                      /*offered=*/false});
  }
  return routes;
}

}  // namespace

std::vector<Route> MemoryRoutes(App& app, const Clock& clock, AddQueue* queue) {
  const auto api = std::make_shared<MemoryApi>(app, clock, queue);
  std::vector<Route> routes;
  using Method = Result<json::value> (MemoryApi::*)(const Call&);
  const auto add = [&](const char* method, std::initializer_list<const char*> paths, Access access,
                       const char* what, Method handler, const RouteSchemas& schemas) {
    for (const char* path : paths) {
      routes.push_back({method, path, access, what,
                        Json([api, handler](const Call& call) { return (*api.*handler)(call); }),
                        schemas});
    }
  };
  const auto ping = [](const Call& call) -> Result<json::value> {
    // Mem0's client does not start without an organisation and a project.
    return json::object{{"status", "ok"},
                        {"tenant", call.caller.tenant},
                        {"access", KeyAccessName(call.caller.access)},
                        {"key_id", call.caller.key_id.empty() ? json::value(nullptr)
                                                              : json::value(call.caller.key_id)},
                        {"org_id", "inferscale"},
                        {"project_id", call.caller.tenant}};
  };
  routes.push_back(
      {"GET", "/v1/ping", Access::kRead, "Whose key this is", Json(ping), {}, /*quiet=*/true});
  add("POST", {"/memories", "/v3/memories/add"}, Access::kWrite, "Remembers messages, a fact each",
      &MemoryApi::Add, memory_schemas::kAdd);
  if (queue != nullptr) {
    add("GET", {"/v1/event/{id}"}, Access::kRead, "What became of an addition with async_mode",
        &MemoryApi::Event, memory_schemas::kEvent);
  }
  add("POST", {"/search", "/v3/memories/search"}, Access::kRead, "The memories nearest to a query",
      &MemoryApi::Search, memory_schemas::kSearch);
  add("GET", {"/memories"}, Access::kRead, "Memories, newest first", &MemoryApi::List,
      memory_schemas::kList);
  add("POST", {"/v3/memories"}, Access::kRead, "A page of memories, newest first",
      &MemoryApi::ListPage, memory_schemas::kListPage);
  add("DELETE", {"/memories", "/v1/memories"}, Access::kWrite, "Erases all of a user, agent or run",
      &MemoryApi::DeleteAll, memory_schemas::kDeleteAll);
  add("GET", {"/memories/{id}", "/v1/memories/{id}"}, Access::kRead, "One memory", &MemoryApi::Get,
      memory_schemas::kGet);
  add("PUT", {"/memories/{id}", "/v1/memories/{id}"}, Access::kWrite, "Changes a memory",
      &MemoryApi::Update, memory_schemas::kUpdate);
  add("DELETE", {"/memories/{id}", "/v1/memories/{id}"}, Access::kWrite, "Erases a memory",
      &MemoryApi::Delete, memory_schemas::kDelete);
  add("GET", {"/memories/{id}/history", "/v1/memories/{id}/history"}, Access::kRead,
      "What became of a memory", &MemoryApi::History, memory_schemas::kHistory);
  add("PUT", {"/v1/batch"}, Access::kWrite, "Changes up to 1000 memories", &MemoryApi::BatchUpdate,
      memory_schemas::kBatchUpdate);
  add("DELETE", {"/v1/batch"}, Access::kWrite, "Erases up to 1000 memories",
      &MemoryApi::BatchDelete, memory_schemas::kBatchDelete);
  add("GET", {"/entities"}, Access::kRead, "The users, agents and runs that have memories",
      &MemoryApi::Entities, memory_schemas::kEntities);
  add("GET", {"/v1/entities"}, Access::kRead, "The users, agents and runs that have memories",
      &MemoryApi::EntitiesPage, memory_schemas::kEntitiesPage);
  add("DELETE", {"/entities/{type}/{name}", "/v2/entities/{type}/{name}"}, Access::kWrite,
      "Erases all of a user, agent or run", &MemoryApi::DeleteEntity, memory_schemas::kDelete);
  add("POST", {"/reset"}, Access::kWrite, "Erases all of the tenant", &MemoryApi::Reset,
      memory_schemas::kDelete);
  for (Route& route : NotOffered()) routes.push_back(std::move(route));
  return routes;
}

}  // namespace inferscale
