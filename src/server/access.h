// What a caller may do, and what a route asks for.
#ifndef INFERSCALE_SERVER_ACCESS_H_
#define INFERSCALE_SERVER_ACCESS_H_

#include <cstdint>
#include <string>

namespace inferscale {

// Each may do what those before it may: anybody; a key that reads; a key that writes too; a key
// that also makes and revokes keys.
enum class Access : uint8_t { kOpen, kRead, kWrite, kAdmin };

// Who asks, as the key says: nothing of a request's body or path says it.
struct Caller {
  std::string tenant;
  Access access = Access::kOpen;
  std::string key_id;  // empty if no key was asked for

  // What is of all tenants together. Whoever needs no key has the machine to themselves.
  bool SeesAll() const { return access == Access::kAdmin || key_id.empty(); }
};

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_ACCESS_H_
