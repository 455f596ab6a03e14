// A batch of searches for the tests of topk on devices, real and emulated.
#ifndef INFERSCALE_TESTS_OPS_TOPK_CASE_H_
#define INFERSCALE_TESTS_OPS_TOPK_CASE_H_

#include <functional>
#include <memory>
#include <vector>

#include "../kv/seed.h"
#include "kv/shape.h"
#include "ops/device.h"
#include "ops/topk/topk.h"
#include "ops/topk/topk_plan.h"

namespace inferscale {

struct TopKUser {
  uint32_t count = 0;
  std::unique_ptr<std::byte[]> rows;  // no longer than they are, so that AddressSanitizer sees all
  std::vector<float> query;
  std::vector<uint64_t> allowed;  // empty: all
};

class TopKCase {
 public:
  TopKCase(uint32_t dims, uint32_t k, Dtype dtype) : dims_(dims), k_(k), dtype_(dtype) {}
  // A few users of up to `most_rows` rows of small whole numbers, or of normal ones.
  static TopKCase Make(Random& random, uint32_t most_rows, bool whole_numbers);

  TopKUser& Add(uint32_t count, const std::function<float()>& value);
  void Set(TopKUser& user, uint32_t row, uint32_t d, float value) const;

  // Both check that the workspace is left as it was found.
  void RunOn(Device& device);
  // In host memory, with a workspace for a device of that size.
  void RunOnHost(const cuda::TopKDevice& device,
                 const std::function<int(const cuda::PluginTopK&)>& run);

  // Of the last run, of search i.
  std::vector<Scored> Result(size_t i) const;
  // All results: exactly, or, where sums are rounded, rank by rank, with the reference's order
  // wherever its scores are further apart than rounding.
  void Check(bool exact) const;

 private:
  cuda::PluginTopK Call(std::span<const cuda::PluginSearch> searches) const;
  std::vector<Scored> Want(size_t i, uint32_t k) const;
  void CheckRounded(const std::vector<Scored>& got, const std::vector<Scored>& more) const;

  uint32_t dims_, k_;
  Dtype dtype_;
  std::vector<TopKUser> users_;
  std::vector<uint32_t> rows_;
  std::vector<float> scores_;
};

std::vector<uint64_t> RandomBitmap(Random& random, uint32_t count, double share);

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_OPS_TOPK_CASE_H_
