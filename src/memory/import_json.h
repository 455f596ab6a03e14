// What the readers of JSON in import.cc and import_peers.cc share.
#ifndef INFERSCALE_MEMORY_IMPORT_JSON_H_
#define INFERSCALE_MEMORY_IMPORT_JSON_H_

#include <boost/json.hpp>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/result.h"

namespace inferscale {

// The value of the first of `names` that the object has, or nullptr; null counts as absent.
inline const boost::json::value* FirstOf(const boost::json::object& object,
                                         std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const boost::json::value* value = object.if_contains(name);
    if (value != nullptr && !value->is_null()) return value;
  }
  return nullptr;
}

// Leaves `out` as it is if none is there.
inline Status ReadText(const boost::json::object& object,
                       std::initializer_list<std::string_view> names, std::string& out) {
  const boost::json::value* value = FirstOf(object, names);
  if (value == nullptr) return {};
  if (!value->is_string()) return Fail(Code::kInvalid, "{} is not a text", *names.begin());
  out = std::string_view(value->get_string());
  return {};
}

}  // namespace inferscale

#endif  // INFERSCALE_MEMORY_IMPORT_JSON_H_
