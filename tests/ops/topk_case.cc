#include "topk_case.h"

#include <algorithm>
#include <limits>

#include "ops/element.h"

namespace inferscale {

using cuda::PluginSearch;
using cuda::PluginTopK;

namespace {

constexpr uint32_t kNoRow = 0xFFFFFFFF;
constexpr size_t kTicketWords = cuda::kTopKTicketBytes / sizeof(uint64_t);

// What a device holds of host memory.
template <typename T>
const T* Upload(Device& device, const T* from, size_t count, std::vector<DeviceMemory>& memory) {
  if (count == 0) return nullptr;
  memory.push_back(device.Alloc(count * sizeof(T)).value());
  std::byte* const to = memory.back().data();
  EXPECT_TRUE(device.Copy(to, from, count * sizeof(T), cuda::kHostToDevice, nullptr));
  return reinterpret_cast<const T*>(to);
}

template <typename T>
std::vector<T> Download(Device& device, const DeviceMemory& from, size_t count) {
  std::vector<T> to(count);
  EXPECT_TRUE(device.Copy(to.data(), from.data(), count * sizeof(T), cuda::kDeviceToHost, nullptr));
  EXPECT_TRUE(device.Synchronize(nullptr));
  return to;
}

}  // namespace

std::vector<uint64_t> RandomBitmap(Random& random, uint32_t count, double share) {
  std::vector<uint64_t> bits((count + 63) / 64);
  for (uint64_t& word : bits) {
    for (int bit = 0; bit < 64; ++bit) word |= uint64_t{random.Chance(share)} << bit;
  }
  return bits;  // the bits behind the last row are random too: they mean nothing
}

TopKCase TopKCase::Make(Random& random, uint32_t most_rows, bool whole_numbers) {
  TopKCase made(8 * random.Between(1U, random.Chance(0.2) ? 64U : 8U),
                random.Between(1U, random.Chance(0.5) ? cuda::kTopKMaxK : 8U),
                random.Pick({Dtype::kF16, Dtype::kF32}));
  for (int users = random.Between(1, 5); users > 0; --users) {
    const uint32_t count = random.Between(0U, random.Chance(0.2) ? 3U : most_rows);
    TopKUser& user = made.Add(count, [&]() -> float {
      return whole_numbers ? static_cast<float>(random.Between(-1, 1)) : random.Normal();
    });
    if (random.Chance(0.4)) user.allowed = RandomBitmap(random, count, random.Between(0.0, 1.0));
  }
  return made;
}

TopKUser& TopKCase::Add(uint32_t count, const std::function<float()>& value) {
  TopKUser& user = users_.emplace_back();
  user.count = count;
  user.rows = std::make_unique<std::byte[]>(size_t{count} * dims_ * DtypeSize(dtype_));
  for (uint32_t row = 0; row < count; ++row) {
    for (uint32_t d = 0; d < dims_; ++d) Set(user, row, d, value());
  }
  for (uint32_t d = 0; d < dims_; ++d) user.query.push_back(value());
  return user;
}

void TopKCase::Set(TopKUser& user, uint32_t row, uint32_t d, float value) const {
  WriteElement(user.rows.get(), dtype_, size_t{row} * dims_ + d, value);
}

PluginTopK TopKCase::Call(std::span<const PluginSearch> searches) const {
  PluginTopK topk = {};
  topk.searches = searches.data();
  topk.search_count = static_cast<uint32_t>(searches.size());
  topk.dims = dims_;
  topk.k = k_;
  topk.row_dtype = static_cast<uint8_t>(dtype_);
  return topk;
}

void TopKCase::RunOnHost(const cuda::TopKDevice& device,
                         const std::function<int(const PluginTopK&)>& run) {
  std::vector<PluginSearch> searches;
  for (const TopKUser& user : users_) {
    searches.push_back({user.rows.get(), user.query.data(),
                        user.allowed.empty() ? nullptr : user.allowed.data(), user.count});
  }
  rows_.assign(searches.size() * k_, 12345);
  scores_.assign(searches.size() * k_, 12345);
  PluginTopK topk = Call(searches);
  std::vector<uint64_t> workspace(cuda::TopKWorkspaceBytes(topk, device) / sizeof(uint64_t), ~0ULL);
  std::fill_n(workspace.begin(), kTicketWords, 0);
  topk.out_rows = rows_.data();
  topk.out_scores = scores_.data();
  topk.workspace = workspace.data();
  ASSERT_EQ(run(topk), 0);
  ASSERT_EQ(std::count(workspace.begin(), workspace.begin() + kTicketWords, 0U), kTicketWords);
}

void TopKCase::RunOn(Device& device) {
  std::vector<DeviceMemory> memory;
  std::vector<PluginSearch> searches;
  for (const TopKUser& user : users_) {
    searches.push_back(
        {Upload(device, user.rows.get(), user.count * dims_ * DtypeSize(dtype_), memory),
         Upload(device, user.query.data(), dims_, memory),
         Upload(device, user.allowed.data(), user.allowed.size(), memory), user.count});
  }
  DeviceTopK topk = {.searches = searches, .dims = dims_, .k = k_, .row_dtype = dtype_};
  const DeviceMemory workspace = device.AllocTopKWorkspace(topk).value();
  const size_t results = searches.size() * k_;
  const DeviceMemory rows = device.Alloc(results * sizeof(uint32_t)).value();
  const DeviceMemory scores = device.Alloc(results * sizeof(float)).value();
  ASSERT_TRUE(device.Fill(workspace.data() + cuda::kTopKTicketBytes, 0xFF,
                          workspace.bytes() - cuda::kTopKTicketBytes, nullptr));
  topk.out_rows = reinterpret_cast<uint32_t*>(rows.data());
  topk.out_scores = reinterpret_cast<float*>(scores.data());
  std::vector<float> before;
  for (int round = 0; round < 2; ++round) {  // the second finds the workspace as the first left it
    ASSERT_TRUE(device.Fill(rows.data(), 0x77, results * sizeof(uint32_t), nullptr));
    ASSERT_TRUE(device.TopK(topk, workspace, nullptr));
    rows_ = Download<uint32_t>(device, rows, results);
    scores_ = Download<float>(device, scores, results);
    ASSERT_TRUE(round == 0 || scores_ == before);
    before = scores_;
  }
}

std::vector<Scored> TopKCase::Result(size_t i) const {
  std::vector<Scored> found;
  for (size_t rank = i * k_; rank < (i + 1) * k_ && rows_[rank] != kNoRow; ++rank) {
    found.push_back({rows_[rank], scores_[rank]});
  }
  for (size_t rank = i * k_ + found.size(); rank < (i + 1) * k_; ++rank) {
    EXPECT_EQ(rows_[rank], kNoRow);
    EXPECT_EQ(scores_[rank], -std::numeric_limits<float>::infinity());
  }
  return found;
}

std::vector<Scored> TopKCase::Want(size_t i, uint32_t k) const {
  const TopKUser& user = users_[i];
  return TopKReference({user.rows.get(), user.count, dims_, dtype_}, user.query, k, user.allowed);
}

void TopKCase::Check(bool exact) const {
  for (size_t i = 0; i < users_.size(); ++i) {
    SCOPED_TRACE("search " + std::to_string(i));
    if (exact) {
      ASSERT_EQ(Result(i), Want(i, k_));
    } else {
      CheckRounded(Result(i), Want(i, k_ + 1));
    }
    if (testing::Test::HasFatalFailure()) return;
  }
}

void TopKCase::CheckRounded(const std::vector<Scored>& got, const std::vector<Scored>& more) const {
  const double tolerance = dims_ * 0x1p-18;
  ASSERT_EQ(got.size(), std::min<size_t>(more.size(), k_));
  const auto apart = [&](size_t rank) {
    return rank + 1 >= more.size() || more[rank].score - more[rank + 1].score > 2 * tolerance;
  };
  for (size_t rank = 0; rank < got.size(); ++rank) {
    ASSERT_NEAR(got[rank].score, more[rank].score, tolerance);
    if (apart(rank) && (rank == 0 || apart(rank - 1))) {
      ASSERT_EQ(got[rank].row, more[rank].row) << "rank " << rank;
    }
  }
}

}  // namespace inferscale
