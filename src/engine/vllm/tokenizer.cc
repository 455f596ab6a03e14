#include "engine/vllm/tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace inferscale {
namespace {

constexpr int kWorkers = 4;
constexpr size_t kMostExpected = 1024;
constexpr std::chrono::seconds kKept{10};

size_t FirstCharacter(std::string_view text) {
  size_t length = 1;
  while (length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) {
    ++length;
  }
  return length;
}

bool OnlySpace(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

std::vector<std::string_view> CutMarkers(std::string_view text,
                                         std::span<const std::string> markers) {
  std::array<std::vector<const std::string*>, 256> by_byte;
  for (const std::string& marker : markers) {
    if (marker.size() <= FirstCharacter(marker)) continue;
    by_byte[static_cast<unsigned char>(marker[0])].push_back(&marker);
  }
  std::vector<std::string_view> parts;
  size_t begin = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto& candidates = by_byte[static_cast<unsigned char>(text[at])];
    const bool found = std::any_of(candidates.begin(), candidates.end(), [&](const auto* marker) {
      return text.substr(at).starts_with(*marker);
    });
    if (!found) continue;
    const size_t cut = at + FirstCharacter(text.substr(at));
    parts.push_back(text.substr(begin, cut - begin));
    begin = cut;
  }
  if (begin < text.size()) parts.push_back(text.substr(begin));
  return parts;
}

VllmTokenizer::VllmTokenizer(Ask ask, const TokenizerInfo& info)
    : ask_(std::move(ask)), bos_(info.bos) {
  for (const auto& [text, token] : info.special) {
    if (text.empty() || OnlySpace(text)) continue;  // runs of spaces and line breaks say nothing
    special_.insert(token);
    markers_.push_back(text);
  }
  for (int i = 0; i < kWorkers; ++i) {
    workers_.emplace_back([this](const std::stop_token& stop) { Work(stop); });
  }
}

VllmTokenizer::~VllmTokenizer() = default;

std::vector<Token> VllmTokenizer::Bos() const {
  return bos_ ? std::vector<Token>{*bos_} : std::vector<Token>{};
}

Result<std::vector<Token>> VllmTokenizer::Text(std::string_view text,
                                               std::span<const Token> reserved) const {
  if (const size_t bad = FindInvalidUtf8(text); bad != std::string_view::npos) {
    return Fail(Code::kInvalid, "the text is not UTF-8 at byte {}", bad);
  }
  if (text.empty()) return std::vector<Token>{};
  std::optional<Tokens> early;
  if (const auto expected = Take(text)) early = expected->get();
  INFERSCALE_ASSIGN(std::vector<Token> tokens,
                    early && *early ? std::move(*early) : AskSafely(text));
  std::erase_if(tokens, [&](Token token) {
    return std::find(reserved.begin(), reserved.end(), token) != reserved.end();
  });
  return tokens;
}

// A tokenizer may still put a special token together, e.g. where it changes letters before it
// looks for them: that one is left out.
VllmTokenizer::Tokens VllmTokenizer::AskSafely(std::string_view text) const {
  std::vector<Token> tokens;
  for (const std::string_view part : CutMarkers(text, markers_)) {
    INFERSCALE_ASSIGN(const std::vector<Token> more, ask_(part));
    std::copy_if(more.begin(), more.end(), std::back_inserter(tokens),
                 [&](Token token) { return !special_.contains(token); });
  }
  return tokens;
}

void VllmTokenizer::Expect(std::string_view text) const {
  if (text.empty() || FindInvalidUtf8(text) != std::string_view::npos) return;
  const Hash128 hash = HashBytes(AsBytes(text));
  const auto now = std::chrono::steady_clock::now();
  {
    const std::lock_guard lock(mutex_);
    while (!expected_.empty() &&
           (expected_.size() >= kMostExpected || now - expected_.front().since > kKept)) {
      expected_.pop_front();
    }
    const bool known = std::any_of(expected_.begin(), expected_.end(),
                                   [&](const Expected& one) { return one.text_hash == hash; });
    if (known || jobs_.size() >= kMostExpected) return;
    Job& job = jobs_.emplace_back();
    job.text = text;
    expected_.push_back({hash, now, job.tokens.get_future().share()});
  }
  wake_.notify_one();
}

std::optional<std::shared_future<VllmTokenizer::Tokens>> VllmTokenizer::Take(
    std::string_view text) const {
  const Hash128 hash = HashBytes(AsBytes(text));
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(expected_.begin(), expected_.end(),
                                  [&](const Expected& one) { return one.text_hash == hash; });
  if (found == expected_.end()) return std::nullopt;
  auto tokens = std::move(found->tokens);
  expected_.erase(found);
  return tokens;
}

void VllmTokenizer::Work(const std::stop_token& stop) const {
  while (true) {
    std::list<Job> job;
    {
      std::unique_lock lock(mutex_);
      if (!wake_.wait(lock, stop, [&] { return !jobs_.empty(); })) return;
      job.splice(job.begin(), jobs_, jobs_.begin());
    }
    job.front().tokens.set_value(AskSafely(job.front().text));
  }
}

}  // namespace inferscale
