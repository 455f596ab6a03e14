#include "app/erasure.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <set>

#include "app/app_impl.h"
#include "store/env.h"

namespace inferscale {
namespace {

namespace fs = std::filesystem;

constexpr size_t kChunk = size_t{4} << 20;
// A row that is too long for a page goes on in another one, at any byte. Of pieces of this size all
// but one stay whole.
constexpr size_t kTextPiece = 24;
constexpr size_t kVectorPiece = 32;
constexpr size_t kVectorStep = 256;

uint64_t FirstEight(const char* bytes) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

size_t FirstThree(const char* bytes) {
  uint32_t value = 0;
  std::memcpy(&value, bytes, 3);
  return value;
}

}  // namespace

Needles::Needles() : may_start_(size_t{1} << 24) {}

int Needles::Add(std::string_view bytes) {
  const std::set<char> distinct(bytes.begin(), bytes.end());
  if (bytes.size() < kShortest || distinct.size() < kDistinctBytes) return -1;
  std::vector<uint32_t>& same_start = by_start_[FirstEight(bytes.data())];
  for (const uint32_t number : same_start) {
    if (needles_[number] == bytes) return static_cast<int>(number);
  }
  same_start.push_back(static_cast<uint32_t>(needles_.size()));
  needles_.emplace_back(bytes);
  may_start_[FirstThree(bytes.data())] = true;
  longest_ = std::max(longest_, bytes.size());
  return static_cast<int>(needles_.size()) - 1;
}

void Needles::Find(std::string_view bytes, std::vector<bool>& hits) const {
  for (size_t i = 0; i + kShortest <= bytes.size(); ++i) {
    if (!may_start_[FirstThree(bytes.data() + i)]) continue;
    const auto found = by_start_.find(FirstEight(bytes.data() + i));
    if (found == by_start_.end()) continue;
    for (const uint32_t number : found->second) {
      if (bytes.substr(i).starts_with(needles_[number])) hits[number] = true;
    }
  }
}

namespace {

class Search {
 public:
  explicit Search(const Traces& traces) {
    for (const std::string& text : traces.texts) {
      const bool added = AddPieces(text, kTextPiece, kTextPiece);
      ++(added ? proof_.texts : proof_.short_texts);
    }
    for (const std::string& vector : traces.vectors) {
      proof_.vectors += AddPieces(vector, kVectorPiece, kVectorStep) ? 1 : 0;
    }
    keys_from_ = needles_.size();
    for (const Hash128& key : traces.keys) {
      const uint64_t words[] = {key.high, key.low};  // as both databases and segments have it
      needles_.Add({reinterpret_cast<const char*>(words), sizeof(words)});
      ++proof_.keys;
    }
  }

  Status ReadFile(const fs::path& path, const std::string& name) {
    const auto file = SystemEnv().OpenRead(path.string());
    if (!file && file.error().code == Code::kNotFound) return {};  // a log that just went
    if (!file) return tl::unexpected(file.error());
    INFERSCALE_ASSIGN(uint64_t size, (*file)->Size());
    const size_t overlap = needles_.longest() == 0 ? 0 : needles_.longest() - 1;
    std::string buffer;
    std::vector<bool> here(needles_.size());
    for (uint64_t at = 0; at < size;) {
      const size_t kept = std::min(overlap, buffer.size());
      buffer.erase(0, buffer.size() - kept);
      const size_t more = std::min<uint64_t>(kChunk, size - at);
      buffer.resize(kept + more);
      const Status read =
          (*file)->ReadAt(at, std::as_writable_bytes(std::span(buffer).subspan(kept)));
      if (!read && read.error().code == Code::kCorrupt) {  // it has become shorter
        INFERSCALE_ASSIGN(size, (*file)->Size());
        buffer.resize(kept);
        if (at < size) continue;
        break;
      }
      INFERSCALE_TRY(read);
      at += more;
      needles_.Find(buffer, here);
    }
    ++proof_.files;
    proof_.bytes += size;
    for (size_t n = 0; n < here.size(); ++n) {
      if (here[n]) places_[n].push_back(name);
    }
    return {};
  }

  // What facts that stay say too is no trace.
  Result<ErasureProof> Finish(FactStore& facts) {
    std::vector<bool> stored(needles_.size());
    if (!places_.empty()) {
      INFERSCALE_TRY(
          facts.ForEachStored([&](std::string_view bytes) { needles_.Find(bytes, stored); }));
    }
    std::set<std::string> found_in;
    for (const auto& [number, names] : places_) {
      if (number < keys_from_ && stored[number]) {
        ++proof_.shared;
      } else {
        found_in.insert(names.begin(), names.end());
      }
    }
    proof_.found_in.assign(found_in.begin(), found_in.end());
    return std::move(proof_);
  }

 private:
  bool AddPieces(std::string_view bytes, size_t piece, size_t step) {
    bool added = false;
    for (size_t at = 0; at < bytes.size(); at += step) {
      // The last piece is as long as the others, and so overlaps.
      const size_t from = bytes.size() < piece ? 0 : std::min(at, bytes.size() - piece);
      added = needles_.Add(bytes.substr(from, piece)) >= 0 || added;
    }
    return added;
  }

  Needles needles_;
  size_t keys_from_ = 0;
  std::unordered_map<size_t, std::vector<std::string>> places_;  // of needles that were found
  ErasureProof proof_;
};

}  // namespace

Result<ErasureProof> ProveErasure(const std::string& data_dir, FactStore& facts,
                                  const Traces& traces) {
  Search search(traces);
  try {
    for (const auto& entry : fs::recursive_directory_iterator(data_dir)) {
      if (!entry.is_regular_file()) continue;
      INFERSCALE_TRY(search.ReadFile(entry.path(), fs::relative(entry.path(), data_dir).string()));
    }
  } catch (const fs::filesystem_error& error) {
    return Fail(Code::kTransient, "{}", error.what());
  }
  return search.Finish(facts);
}

Result<ForgetReport> AppImpl::Forget(const Scope& scope, bool verify) {
  ForgetReport report;
  Traces traces;
  if (verify) {
    INFERSCALE_ASSIGN(traces, facts_->FindTraces(scope));
    INFERSCALE_ASSIGN(traces.keys, KeysOfAnyRank(traces.keys));
  }
  INFERSCALE_ASSIGN(report.erased, DeleteScope(scope));
  INFERSCALE_ASSIGN(report.compacted, Compact(/*drop_unused=*/false));
  if (verify) {
    INFERSCALE_ASSIGN(report.proof, ProveErasure(options_.data_dir, *facts_, traces));
  }
  return report;
}

}  // namespace inferscale
