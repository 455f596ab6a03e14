// Reading the JSON of requests.
#ifndef INFERSCALE_SERVER_JSON_MEMBERS_H_
#define INFERSCALE_SERVER_JSON_MEMBERS_H_

#include <boost/json.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace inferscale {

// kInvalid for what is no JSON, too deep or not UTF-8; the message holds nothing of it.
Result<boost::json::value> ParseJson(std::string_view text);

// The object that a request's body is. kInvalid for what is none, too deep or not UTF-8; the
// message holds nothing of it.
Result<boost::json::object> ParseBody(std::string_view body);

// The text of a message: a string, or parts of which all are text. Empty if there is none.
Result<std::string> ReadContent(const boost::json::value* content);

// Members of a JSON object, by type: absent and null leave the value as it is.
class Members {
 public:
  Members(const boost::json::object& object, std::string_view name)
      : object_(object), name_(name) {}

  const boost::json::value* Find(std::string_view key) const {
    const boost::json::value* value = object_.if_contains({key.data(), key.size()});
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  Status Text(std::string_view key, std::string& out) const {
    const boost::json::value* value = Find(key);
    if (value == nullptr) return {};
    if (!value->is_string()) return Wrong(key, "a string");
    out.assign(value->get_string().data(), value->get_string().size());
    return {};
  }
  Status Bool(std::string_view key, bool& out) const {
    const boost::json::value* value = Find(key);
    if (value == nullptr) return {};
    if (!value->is_bool()) return Wrong(key, "true or false");
    out = value->get_bool();
    return {};
  }
  template <typename T>
  Status Integer(std::string_view key, int64_t least, int64_t most, T& out) const {
    const boost::json::value* value = Find(key);
    if (value == nullptr) return {};
    if (!value->is_int64() || value->get_int64() < least || value->get_int64() > most) {
      return Wrong(key, fmt::format("a whole number from {} to {}", least, most));
    }
    out = static_cast<T>(value->get_int64());
    return {};
  }
  Status Number(std::string_view key, double least, double most, float& out) const {
    const boost::json::value* value = Find(key);
    if (value == nullptr) return {};
    const double number = value->is_number() ? value->to_number<double>() : std::nan("");
    if (!(number >= least && number <= most)) {
      return Wrong(key, fmt::format("a number from {} to {}", least, most));
    }
    out = static_cast<float>(number);
    return {};
  }
  tl::unexpected<Error> Wrong(std::string_view key, std::string_view what) const {
    return Fail(Code::kInvalid, "'{}{}' must be {}", name_, key, what);
  }

 private:
  const boost::json::object& object_;
  std::string_view name_;
};

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_JSON_MEMBERS_H_
