// Filters over facts, in the JSON form that Mem0's clients send:
//
//   {"AND": [{"user_id": "ana"}, {"created_at": {"gte": "2024-07-01"}},
//            {"NOT": [{"category": {"in": ["work", "tax"]}}]}]}
//
// Keys: user_id, agent_id, run_id, id, speaker, text, created_at, updated_at, expires_at, when, and
// any other name for a field of the metadata (nested: "a.b"). Operators: a bare value or eq, ne,
// gt, gte, lt, lte, in, nin, contains, icontains; "*" matches every value that is present. Several
// keys of one object are joined by AND. An absent field passes ne and nin; NOT: none of its list.
#ifndef INFERSCALE_MEMORY_FILTER_H_
#define INFERSCALE_MEMORY_FILTER_H_

#include <memory>
#include <string_view>

#include "base/result.h"
#include "memory/fact.h"

namespace inferscale {

class Filter {
 public:
  // kInvalid with the place and the reason. Nesting is limited to 16 levels, the text to 64 KiB.
  // An empty text is a filter that everything passes.
  static Result<Filter> Parse(std::string_view json);

  Filter();
  ~Filter();
  Filter(Filter&&) noexcept;
  Filter& operator=(Filter&&) noexcept;

  bool Matches(const Fact& fact) const;
  bool matches_all() const { return root_ == nullptr; }

  struct Node;

 private:
  std::unique_ptr<Node> root_;
};

}  // namespace inferscale

#endif  // INFERSCALE_MEMORY_FILTER_H_
