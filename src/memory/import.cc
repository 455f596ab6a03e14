#include "memory/import.h"

#include <algorithm>
#include <boost/json.hpp>
#include <boost/system/error_code.hpp>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "memory/fold.h"
#include "memory/import_json.h"
#include "memory/import_peers.h"
#include "memory/json_time.h"

namespace inferscale {
namespace {

namespace json = boost::json;

std::string_view WithoutMark(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return text;
}

// What an object says about a fact, but for its text.
Status ReadCircumstances(const json::object& object, Fact& fact) {
  INFERSCALE_TRY(ReadText(object, {"speaker", "name", "role"}, fact.speaker));
  INFERSCALE_TRY(ReadText(object, {"user"}, fact.scope.user));
  INFERSCALE_TRY(ReadText(object, {"agent"}, fact.scope.agent));
  INFERSCALE_TRY(ReadText(object, {"run"}, fact.scope.run));
  if (const json::value* when = FirstOf(object, {"when", "date", "timestamp"})) {
    INFERSCALE_ASSIGN(fact.when_ms, TimeFromJson(*when));
  }
  if (const json::value* metadata = object.if_contains("metadata")) {
    if (!metadata->is_object()) return Fail(Code::kInvalid, "metadata is not a JSON object");
    fact.metadata = json::serialize(*metadata);
  }
  return {};
}

Result<Fact> ReadFactObject(const json::value& value, const Fact& defaults) {
  const json::object* object = value.if_object();
  if (object == nullptr) return Fail(Code::kInvalid, "not a JSON object");
  Fact fact = defaults;
  INFERSCALE_TRY(ReadCircumstances(*object, fact));
  INFERSCALE_TRY(ReadText(*object, {"text", "content"}, fact.text));
  if (IsBlank(fact.text)) return Fail(Code::kInvalid, "it has no text");
  return fact;
}

// Passes a fact on, or says where and why there is none.
Status Deliver(Result<Fact> fact, std::string_view place, const ImportSink& sink) {
  if (fact) return sink.fact(*std::move(fact));
  sink.bad(Error{Code::kInvalid, fmt::format("{}: {}", place, fact.error().message)});
  return {};
}

// Calls `line` with every line that is not blank, its number from 1. One that is not UTF-8 goes to
// sink.bad instead.
template <typename Line>
Status ForEachLine(std::string_view content, const ImportSink& sink, const Line& line) {
  for (size_t number = 1; !content.empty(); ++number) {
    const size_t end = content.find('\n');
    std::string_view text = content.substr(0, end);
    content.remove_prefix(end == std::string_view::npos ? content.size() : end + 1);
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (const size_t at = FindInvalidUtf8(text); at != std::string_view::npos) {
      sink.bad(Error{Code::kInvalid, fmt::format("line {}: not UTF-8 at byte {}", number, at)});
    } else if (!IsBlank(text)) {
      INFERSCALE_TRY(line(text, fmt::format("line {}", number)));
    }
  }
  return {};
}

Status ParseMessages(const json::object& outer, const json::value& messages,
                     const std::string& place, const Fact& defaults, const ImportSink& sink) {
  Fact shared = defaults;
  auto read = ReadCircumstances(outer, shared);
  if (read && !messages.is_array()) read = Fail(Code::kInvalid, "messages is not a list");
  if (!read) return Deliver(tl::unexpected(read.error()), place, sink);
  size_t number = 0;
  for (const json::value& message : messages.get_array()) {
    INFERSCALE_TRY(Deliver(ReadFactObject(message, shared),
                           fmt::format("{}, message {}", place, ++number), sink));
  }
  return {};
}

Status ParseJsonl(std::string_view content, const Fact& defaults, const ImportSink& sink) {
  size_t lines = 0;
  size_t objects = 0;
  INFERSCALE_TRY(ForEachLine(content, sink, [&](std::string_view text, const std::string& place) {
    ++lines;
    boost::system::error_code failed;
    const json::value value = json::parse(text, failed);
    if (failed || !value.is_object()) {
      return Deliver(Fail(Code::kInvalid, "not a JSON object"), place, sink);
    }
    ++objects;
    if (const json::value* messages = value.get_object().if_contains("messages")) {
      return ParseMessages(value.get_object(), *messages, place, defaults, sink);
    }
    return Deliver(ReadFactObject(value, defaults), place, sink);
  }));
  if (lines > 0 && objects == 0) return Fail(Code::kInvalid, "no line is a JSON object");
  return {};
}

// ---- LoCoMo -------------------------------------------------------------------------------------

// The n of "session_<n>".
std::optional<uint32_t> SessionNumber(std::string_view key) {
  constexpr std::string_view kPrefix = "session_";
  if (!key.starts_with(kPrefix)) return std::nullopt;
  key.remove_prefix(kPrefix.size());
  uint32_t number = 0;
  const auto [end, failed] = std::from_chars(key.data(), key.data() + key.size(), number);
  if (failed != std::errc() || end != key.data() + key.size()) return std::nullopt;
  return number;
}

Result<Fact> ReadTurn(const json::value& value, const Fact& session) {
  const json::object* turn = value.if_object();
  if (turn == nullptr) return Fail(Code::kInvalid, "not a JSON object");
  Fact fact = session;
  std::string caption;
  std::string dialogue_id;
  INFERSCALE_TRY(ReadText(*turn, {"speaker"}, fact.speaker));
  INFERSCALE_TRY(ReadText(*turn, {"text"}, fact.text));
  INFERSCALE_TRY(ReadText(*turn, {"blip_caption"}, caption));
  INFERSCALE_TRY(ReadText(*turn, {"dia_id"}, dialogue_id));
  if (!IsBlank(caption)) {
    fact.text += fmt::format("{}[image: {}]", fact.text.empty() ? "" : " ", caption);
  }
  if (IsBlank(fact.text)) return Fail(Code::kInvalid, "it has no text");
  if (!dialogue_id.empty()) fact.metadata = json::serialize(json::object{{"dia_id", dialogue_id}});
  return fact;
}

Status ParseSession(const json::object& conversation, uint32_t number, const std::string& sample,
                    Fact session, const ImportSink& sink) {
  const std::string name = fmt::format("session_{}", number);
  const std::string place = fmt::format("{}, {}", sample, name);
  session.scope.run = name;
  if (const json::value* date = conversation.if_contains(name + "_date_time")) {
    // Undated turns are better than none.
    if (const auto when = TimeFromJson(*date)) {
      session.when_ms = *when;
    } else {
      sink.bad(
          Error{Code::kInvalid, fmt::format("{}: its date is {}", place, when.error().message)});
    }
  }
  size_t turn = 0;
  for (const json::value& value : conversation.at(name).get_array()) {
    INFERSCALE_TRY(
        Deliver(ReadTurn(value, session), fmt::format("{}, turn {}", place, ++turn), sink));
  }
  return {};
}

const json::object* ConversationOf(const json::value& sample) {
  const json::object* object = sample.if_object();
  const json::value* conversation =
      object != nullptr ? object->if_contains("conversation") : nullptr;
  return conversation != nullptr ? conversation->if_object() : nullptr;
}

Status ParseSample(const json::value& value, size_t number, const Fact& defaults,
                   const ImportSink& sink) {
  std::string place = fmt::format("sample {}", number);
  const json::object* conversation = ConversationOf(value);
  if (conversation == nullptr) {
    return Deliver(Fail(Code::kInvalid, "it has no conversation"), place, sink);
  }
  Fact sample = defaults;
  if (auto read = ReadText(value.get_object(), {"sample_id"}, sample.scope.user); !read) {
    return Deliver(tl::unexpected(read.error()), place, sink);
  }
  std::vector<uint32_t> sessions;
  for (const auto& [key, turns] : *conversation) {
    const auto session = SessionNumber(key);
    // Only the plain spelling: "session_01" would be looked up under another name.
    if (session && turns.is_array() && key == fmt::format("session_{}", *session)) {
      sessions.push_back(*session);
    }
  }
  std::ranges::sort(sessions);
  for (const uint32_t session : sessions) {
    INFERSCALE_TRY(ParseSession(*conversation, session, place, sample, sink));
  }
  return {};
}

Status ParseLocomo(std::string_view content, const Fact& defaults, const ImportSink& sink) {
  boost::system::error_code failed;
  const json::value root = json::parse(content, failed);
  if (failed) return Fail(Code::kInvalid, "not JSON: {}", failed.message());
  if (root.is_object()) return ParseSample(root, 1, defaults, sink);
  const json::array* samples = root.if_array();
  if (samples == nullptr || std::ranges::none_of(*samples, ConversationOf)) {
    return Fail(Code::kInvalid, "not a list of samples with conversations");
  }
  for (size_t i = 0; i < samples->size(); ++i) {
    INFERSCALE_TRY(ParseSample((*samples)[i], i + 1, defaults, sink));
  }
  return {};
}

// ---- text ---------------------------------------------------------------------------------------

// "Ana", "Dr. Ana Lima", "user": short, and nothing that a sentence would have.
bool LooksLikeName(std::string_view text) {
  constexpr size_t kMaxBytes = 40;
  constexpr auto kMaxSpaces = 2;
  return !text.empty() && text.size() <= kMaxBytes && text.front() != ' ' && text.back() != ' ' &&
         std::ranges::count(text, ' ') <= kMaxSpaces &&
         text.find_first_of("!\"#()*,/:;<=>?[]{}|\t") == std::string_view::npos;
}

Fact ParseTextLine(std::string_view line, const Fact& defaults) {
  Fact fact = defaults;
  if (line.starts_with('[')) {
    const size_t end = line.find(']');
    const auto when = ParseTime(line.substr(1, end == std::string_view::npos ? 0 : end - 1));
    const bool has_more = end != std::string_view::npos && !IsBlank(line.substr(end + 1));
    if (when && has_more) {
      fact.when_ms = *when;
      line.remove_prefix(end + 1);
    }
  }
  while (line.starts_with(' ') || line.starts_with('\t')) line.remove_prefix(1);
  const size_t colon = line.find(": ");
  if (colon != std::string_view::npos && LooksLikeName(line.substr(0, colon)) &&
      !IsBlank(line.substr(colon + 2))) {
    fact.speaker = line.substr(0, colon);
    line.remove_prefix(colon + 2);
  }
  fact.text = line;
  return fact;
}

Status ParseText(std::string_view content, const Fact& defaults, const ImportSink& sink) {
  return ForEachLine(content, sink, [&](std::string_view line, const std::string&) {
    return sink.fact(ParseTextLine(line, defaults));
  });
}

ImportFormat Detect(std::string_view content) {
  const size_t start = content.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos) return ImportFormat::kText;
  if (content[start] == '{') {
    boost::system::error_code failed;
    const json::value whole = json::parse(content, failed);
    return !failed && ConversationOf(whole) != nullptr ? ImportFormat::kLocomo
                                                       : ImportFormat::kJsonl;
  }
  if (content[start] == '[') {
    // A line of text may begin with a date in brackets.
    const size_t next = content.find_first_not_of(" \t\r\n", start + 1);
    if (next != std::string_view::npos && content[next] == '{') return ImportFormat::kLocomo;
  }
  return ImportFormat::kText;
}

}  // namespace

Result<ImportFormat> ParseImportFormat(std::string_view name) {
  constexpr std::pair<std::string_view, ImportFormat> kNames[] = {
      {"auto", ImportFormat::kAuto},     {"jsonl", ImportFormat::kJsonl},
      {"locomo", ImportFormat::kLocomo}, {"text", ImportFormat::kText},
      {"mem0", ImportFormat::kMem0},     {"zep", ImportFormat::kZep},
      {"letta", ImportFormat::kLetta}};
  for (const auto& [known, format] : kNames) {
    if (name == known) return format;
  }
  return Fail(Code::kInvalid,
              "unknown format \"{}\": auto, jsonl, locomo, text, mem0, zep or letta", name);
}

Status ParseImport(std::string_view content, ImportFormat format, const Fact& defaults,
                   const ImportSink& sink) {
  content = WithoutMark(content);
  if (format == ImportFormat::kAuto) format = Detect(content);
  switch (format) {
    case ImportFormat::kJsonl:
      return ParseJsonl(content, defaults, sink);
    case ImportFormat::kLocomo:
      return ParseLocomo(content, defaults, sink);
    case ImportFormat::kMem0:
      return ParseMem0(content, defaults, sink);
    case ImportFormat::kZep:
      return ParseZep(content, defaults, sink);
    case ImportFormat::kLetta:
      return ParseLetta(content, defaults, sink);
    case ImportFormat::kText:
    case ImportFormat::kAuto:
      break;
  }
  return ParseText(content, defaults, sink);
}

}  // namespace inferscale
