#include "memory/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <boost/system/error_code.hpp>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/utf8.h"

namespace inferscale {
namespace {

namespace json = boost::json;

constexpr uint64_t kFormat = 1;
constexpr std::string_view kBegin = "{\"inferscale_export\":";
constexpr std::string_view kChecksum = ",\"crc32c\":\"";
// Metadata may be as deep as a parser takes by default, and stands one deeper here.
constexpr std::size_t kDepth = 64;
constexpr size_t kChecksumBytes = kChecksum.size() + 8 + std::string_view("\"}").size();

json::value MaybeTime(const std::optional<int64_t>& time) {
  return time ? json::value(*time) : json::value(nullptr);
}

std::string Checksum(std::string_view bytes) {
  return fmt::format("{}{:08x}\"}}", kChecksum, Crc32c(AsBytes(bytes)));
}

// ---- reading -----------------------------------------------------------------------------------

// Members of a line's object, all of which must be there.
class Reader {
 public:
  explicit Reader(const json::object& object) : object_(object) {}

  Status Text(std::string_view name, std::string& out) const {
    const json::value* value = object_.if_contains(name);
    if (value == nullptr || !value->is_string()) return Wrong(name, "a string");
    out = std::string_view(value->get_string());
    return {};
  }
  template <typename T>
  Status Number(std::string_view name, int64_t least, T& out) const {
    const json::value* value = object_.if_contains(name);
    constexpr auto kMost =
        static_cast<int64_t>(std::min<uint64_t>(std::numeric_limits<T>::max(), INT64_MAX));
    if (value == nullptr || !value->is_int64() || value->get_int64() < least ||
        value->get_int64() > kMost) {
      return Wrong(name, "a whole number");
    }
    out = static_cast<T>(value->get_int64());
    return {};
  }
  Status MaybeTime(std::string_view name, std::optional<int64_t>& out) const {
    const json::value* value = object_.if_contains(name);
    if (value != nullptr && value->is_null()) return {};
    return Number(name, INT64_MIN, out.emplace());
  }
  Result<const json::array*> List(std::string_view name) const {
    const json::value* value = object_.if_contains(name);
    if (value == nullptr || !value->is_array()) return Wrong(name, "a list");
    return &value->get_array();
  }
  Status Metadata(std::string& out) const {
    const json::value* value = object_.if_contains("metadata");
    if (value == nullptr || !value->is_object()) return Wrong("metadata", "an object");
    out = json::serialize(*value);
    return {};
  }

 private:
  static tl::unexpected<Error> Wrong(std::string_view name, std::string_view what) {
    return Fail(Code::kInvalid, "'{}' must be {}", name, what);
  }

  const json::object& object_;
};

Result<json::object> ParseObject(std::string_view line) {
  if (FindInvalidUtf8(line) != std::string_view::npos) return Fail(Code::kInvalid, "not UTF-8");
  json::parse_options options;
  options.max_depth = kDepth;
  boost::system::error_code failed;
  json::value value = json::parse(line, failed, {}, options);
  if (failed || !value.is_object()) return Fail(Code::kInvalid, "not a JSON object");
  return std::move(value.get_object());
}

Result<HistoryEntry> ReadEntry(const json::value& value, const std::string& id) {
  if (!value.is_object()) return Fail(Code::kInvalid, "'history' must hold objects");
  const Reader reader(value.get_object());
  HistoryEntry entry;
  entry.fact_id = id;
  INFERSCALE_TRY(reader.Number("version", 0, entry.version));
  INFERSCALE_TRY(reader.Text("event", entry.event));
  INFERSCALE_TRY(reader.Text("old_text", entry.old_text));
  INFERSCALE_TRY(reader.Text("new_text", entry.new_text));
  INFERSCALE_TRY(reader.Number("at_ms", INT64_MIN, entry.at_ms));
  return entry;
}

Result<FactWithHistory> ReadFact(std::string_view line) {
  INFERSCALE_ASSIGN(const json::object object, ParseObject(line));
  const Reader reader(object);
  FactWithHistory out;
  Fact& fact = out.fact;
  INFERSCALE_TRY(reader.Text("id", fact.id));
  if (fact.id.empty()) return Fail(Code::kInvalid, "'id' is empty");
  INFERSCALE_TRY(reader.Text("user", fact.scope.user));
  INFERSCALE_TRY(reader.Text("agent", fact.scope.agent));
  INFERSCALE_TRY(reader.Text("run", fact.scope.run));
  INFERSCALE_TRY(reader.Text("text", fact.text));
  INFERSCALE_TRY(reader.Text("speaker", fact.speaker));
  INFERSCALE_TRY(reader.MaybeTime("when_ms", fact.when_ms));
  INFERSCALE_TRY(reader.Metadata(fact.metadata));
  INFERSCALE_TRY(reader.Number("version", 1, fact.version));
  INFERSCALE_TRY(reader.Number("created_ms", INT64_MIN, fact.created_ms));
  INFERSCALE_TRY(reader.Number("updated_ms", INT64_MIN, fact.updated_ms));
  INFERSCALE_TRY(reader.MaybeTime("expires_ms", fact.expires_ms));
  INFERSCALE_ASSIGN(const json::array* history, reader.List("history"));
  for (const json::value& value : *history) {
    INFERSCALE_ASSIGN(HistoryEntry entry, ReadEntry(value, fact.id));
    out.history.push_back(std::move(entry));
  }
  return out;
}

bool HasOwnChecksum(std::string_view line) {
  if (line.size() < kChecksumBytes) return false;
  const size_t end = line.size() - kChecksumBytes;
  return line.substr(end) == Checksum(line.substr(0, end));
}

std::vector<std::string_view> SplitLines(std::string_view content) {
  std::vector<std::string_view> lines;
  while (!content.empty()) {
    const size_t end = std::min(content.find('\n'), content.size());
    lines.push_back(content.substr(0, end));
    content.remove_prefix(std::min(end + 1, content.size()));
  }
  return lines;
}

Status CheckBegin(std::string_view line) {
  uint64_t format = 0;
  const auto object = ParseObject(line);
  if (!object || !Reader(*object).Number("inferscale_export", 1, format)) {
    return Fail(Code::kInvalid, "line 1: not the beginning of an export");
  }
  if (format == kFormat) return {};
  return Fail(Code::kUnsupported, "an export of format {}; this program knows {}", format, kFormat);
}

// Which line is it that was changed? `lines` are those of facts; the first of them is line 2.
tl::unexpected<Error> WhatIsWrong(std::span<const std::string_view> lines) {
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!HasOwnChecksum(lines[i])) {
      return Fail(Code::kCorrupt, "line {}: it was changed, or is cut off", i + 2);
    }
  }
  return Fail(Code::kCorrupt,
              "lines were lost, added or moved: each is whole, but the checksum of all is wrong");
}

}  // namespace

std::string ExportWriter::Hashed(std::string line) {
  hasher_.AddRaw(AsBytes(line));
  return line;
}

std::string ExportWriter::Begin() { return Hashed(fmt::format("{}{}}}\n", kBegin, kFormat)); }

std::string ExportWriter::Line(const FactWithHistory& exported) {
  const Fact& fact = exported.fact;
  boost::system::error_code failed;
  json::value metadata = json::parse(fact.metadata, failed);
  if (failed) metadata = json::object();
  json::array history;
  for (const HistoryEntry& entry : exported.history) {
    history.push_back({{"version", entry.version},
                       {"event", entry.event},
                       {"old_text", entry.old_text},
                       {"new_text", entry.new_text},
                       {"at_ms", entry.at_ms}});
  }
  std::string line = json::serialize(json::object{{"id", fact.id},
                                                  {"user", fact.scope.user},
                                                  {"agent", fact.scope.agent},
                                                  {"run", fact.scope.run},
                                                  {"text", fact.text},
                                                  {"speaker", fact.speaker},
                                                  {"when_ms", MaybeTime(fact.when_ms)},
                                                  {"metadata", std::move(metadata)},
                                                  {"version", fact.version},
                                                  {"created_ms", fact.created_ms},
                                                  {"updated_ms", fact.updated_ms},
                                                  {"expires_ms", MaybeTime(fact.expires_ms)},
                                                  {"history", std::move(history)}});
  line.pop_back();
  line += Checksum(line);
  ++facts_;
  return Hashed(line + "\n");
}

std::string ExportWriter::End() {
  return fmt::format("{{\"facts\":{},\"xxh3\":\"{}\"}}\n", facts_, hasher_.Digest().Hex());
}

bool LooksLikeExport(std::string_view content) { return content.starts_with(kBegin); }

Result<std::vector<FactWithHistory>> ParseExport(std::string_view content) {
  const std::vector<std::string_view> lines = SplitLines(content);
  INFERSCALE_TRY(CheckBegin(lines.empty() ? "" : lines.front()));
  const Result<json::object> last =
      lines.size() < 2 ? Fail(Code::kCorrupt, "") : ParseObject(lines.back());
  uint64_t count = 0;
  std::string checksum;
  if (!last || !Reader(*last).Number("facts", 0, count) || !Reader(*last).Text("xxh3", checksum)) {
    return Fail(Code::kCorrupt,
                "line {}: not the last line of an export, which has its checksum; the file is cut "
                "off",
                lines.size());
  }
  const auto facts = std::span(lines).subspan(1, lines.size() - 2);
  const auto hashed = static_cast<size_t>(lines.back().data() - content.data());
  if (HashBytes(AsBytes(content.substr(0, hashed))).Hex() != checksum || facts.size() != count) {
    return WhatIsWrong(facts);
  }
  std::vector<FactWithHistory> out;
  std::unordered_map<std::string, size_t> line_of;
  for (size_t i = 0; i < facts.size(); ++i) {
    auto fact = ReadFact(facts[i]);
    if (!fact) return Wrap(std::move(fact).error(), fmt::format("line {}", i + 2));
    const auto [found, is_new] = line_of.emplace(fact->fact.id, i + 2);
    if (!is_new) {
      return Fail(Code::kInvalid, "line {}: the same id as in line {}", i + 2, found->second);
    }
    out.push_back(*std::move(fact));
  }
  return out;
}

}  // namespace inferscale
