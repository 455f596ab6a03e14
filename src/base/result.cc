#include "base/result.h"

namespace inferscale {

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kInvalid:
      return "invalid";
    case Code::kNotFound:
      return "not found";
    case Code::kConflict:
      return "conflict";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kTransient:
      return "transient";
    case Code::kExhausted:
      return "exhausted";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kCancelled:
      return "cancelled";
    case Code::kInternal:
      return "internal";
    case Code::kOverQuota:
      return "over quota";
  }
  return "unknown";
}

}  // namespace inferscale
