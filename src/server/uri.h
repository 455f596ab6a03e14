// Parts of a request's target (RFC 3986) as text.
#ifndef INFERSCALE_SERVER_URI_H_
#define INFERSCALE_SERVER_URI_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace inferscale {

// What %XX stands for put in its place. kInvalid for a wrong %XX and what is not UTF-8.
Result<std::string> PercentDecode(std::string_view text);

// The parameters of a query, decoded; '+' is a space.
class QueryParams {
 public:
  QueryParams() = default;
  explicit QueryParams(std::vector<std::pair<std::string, std::string>> all)
      : all_(std::move(all)) {}
  // "a=1&b=x%20y"; kInvalid as PercentDecode, and for a name that comes twice.
  static Result<QueryParams> Parse(std::string_view query);

  std::optional<std::string> Find(std::string_view name) const;
  const std::vector<std::pair<std::string, std::string>>& all() const { return all_; }

 private:
  std::vector<std::pair<std::string, std::string>> all_;
};

// The parameter as a number; `otherwise` if there is none, kInvalid for anything else.
Result<size_t> NumberParam(const QueryParams& query, std::string_view name, size_t least,
                           size_t most, size_t otherwise);

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_URI_H_
