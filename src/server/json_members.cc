#include "server/json_members.h"

#include <utility>

namespace inferscale {

namespace json = boost::json;

namespace {

constexpr size_t kMaxDepth = 32;

}  // namespace

Result<json::value> ParseJson(std::string_view text) {
  json::parse_options options;
  options.max_depth = kMaxDepth;
  boost::system::error_code error;
  json::value parsed = json::parse({text.data(), text.size()}, error, {}, options);
  if (error) return Fail(Code::kInvalid, "the body is not JSON: {}", error.message());
  return parsed;
}

Result<json::object> ParseBody(std::string_view body) {
  INFERSCALE_ASSIGN(json::value parsed, ParseJson(body));
  if (!parsed.is_object()) return Fail(Code::kInvalid, "the body must be a JSON object");
  return std::move(parsed.get_object());
}

// A string, or parts of which all are text.
Result<std::string> ReadContent(const json::value* content) {
  if (content == nullptr || content->is_null()) return std::string();
  if (const json::string* text = content->if_string()) return std::string(*text);
  const json::array* parts = content->if_array();
  if (parts == nullptr) return Fail(Code::kInvalid, "a message's content must be text");
  std::string all;
  for (const json::value& part : *parts) {
    const json::object* object = part.if_object();
    const json::value* text = object == nullptr ? nullptr : object->if_contains("text");
    if (text == nullptr || !text->is_string()) {
      return Fail(Code::kUnsupported, "only text can be read, no images, audio or files");
    }
    all.append(text->get_string().data(), text->get_string().size());
  }
  return all;
}

}  // namespace inferscale
