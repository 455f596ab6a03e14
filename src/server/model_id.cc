#include "server/model_id.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace inferscale {

std::string ModelId(std::string name) {
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isspace(c) != 0; }, '-');
  return name;
}

std::string ModelId(const ModelInfo& info) {
  return ModelId(info.name.empty() ? info.architecture : info.name);
}

Status CheckModel(std::string_view asked, std::string_view model) {
  if (asked.empty() || asked == model || asked == "inferscale") return {};
  return Fail(Code::kNotFound, "there is no model of this name; there is {}", model);
}

}  // namespace inferscale
