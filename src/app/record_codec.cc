#include "app/record_codec.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "app/calibration_text.h"
#include "ops/codec/codec.h"

namespace inferscale {
namespace {

constexpr uint32_t kItemTokens = 256;  // of the calibration text in one causal pass
// Room above the largest key of the calibration text; it costs int8 a third of a bit.
constexpr float kMargin = 1.25F;
// Writing the file takes milliseconds; a quarter of a minute is enough.
constexpr std::chrono::milliseconds kLockPause{25};
constexpr int kLockAttempts = 600;

Result<KeyScales> ReadScales(const std::string& path, const ModelInfo& model,
                             const KvShape& shape) {
  INFERSCALE_ASSIGN(const auto file, SystemEnv().OpenRead(path));
  INFERSCALE_ASSIGN(const uint64_t size, file->Size());
  // Bounded first: a damaged file must not become a huge allocation.
  if (size > shape.KeyScales() * sizeof(float) + 4096) {
    return Fail(Code::kCorrupt, "key scales of {} bytes", size);
  }
  std::vector<std::byte> bytes(size);
  INFERSCALE_TRY(file->ReadAt(0, bytes));
  INFERSCALE_ASSIGN(KeyScales scales, ParseKeyScales(bytes));
  if (scales.model != model.fingerprint || scales.shape != shape) {
    return Fail(Code::kCorrupt, "key scales of another model, {}", scales.shape.ToString());
  }
  return scales;
}

// Nothing, if there is no usable file.
Result<std::optional<KeyScales>> FindScales(const std::string& path, const ModelInfo& model,
                                            const KvShape& shape) {
  auto scales = ReadScales(path, model, shape);
  if (scales) return std::move(*scales);
  if (scales.error().code == Code::kNotFound) return std::nullopt;
  if (scales.error().code != Code::kCorrupt) return tl::unexpected(scales.error());
  spdlog::warn("{}: {}; they are made again", path, scales.error().message);
  return std::nullopt;
}

// The calibration text behind an empty system text, in items that the encoder takes.
Result<EncodeRequest> CalibrationRequest(const Engine& engine) {
  EncodeRequest request;
  INFERSCALE_ASSIGN(request.prefix, engine.format().Header(""));
  const size_t limit = engine.info().encode_tokens;
  if (request.prefix.size() >= limit) {
    return Fail(Code::kUnsupported, "calibration: a header of {} tokens, the encoder takes {}",
                request.prefix.size(), limit);
  }
  const size_t room = std::min<size_t>(kItemTokens, limit - request.prefix.size());
  std::vector<Token> tokens;
  for (const std::string_view line : kCalibrationText) {
    INFERSCALE_ASSIGN(const auto more, engine.format().Text(line));
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  for (size_t first = 0; first < tokens.size(); first += room) {
    const auto from = tokens.begin() + static_cast<ptrdiff_t>(first);
    const auto count = static_cast<uint32_t>(std::min(room, tokens.size() - first));
    request.items.push_back({{from, from + count}, {{0, count}}});
  }
  return request;
}

Result<KeyScales> MakeScales(Engine& engine, const KvShape& shape) {
  INFERSCALE_ASSIGN(const EncodeRequest request, CalibrationRequest(engine));
  INFERSCALE_ASSIGN(const EncodeResult encoded, engine.Encode(request));
  std::vector<float> maxima(shape.KeyScales(), 0.0F);
  for (const auto& item : encoded.records) {
    const EncodedRecord& record = item.front();
    INFERSCALE_TRY(GrowKeyMaxima({engine.info().shape, record.tokens, record.data.data()}, maxima));
  }
  spdlog::info("key scales were made from {} tokens in {:.1f} s", encoded.computed_tokens,
               encoded.ms / 1e3);
  return MakeKeyScales(engine.info().fingerprint, shape, maxima, kMargin);
}

Result<std::unique_ptr<FileLock>> LockScales(const std::string& path) {
  for (int attempt = 1;; ++attempt) {
    auto lock = SystemEnv().Lock(path + ".lock");
    if (lock || lock.error().code != Code::kConflict || attempt == kLockAttempts) return lock;
    std::this_thread::sleep_for(kLockPause);
  }
}

// Leaves `scales` at `path`, durably, or returns those that another process left there meanwhile.
Result<KeyScales> Publish(const std::string& dir, const std::string& path, const ModelInfo& model,
                          KeyScales scales) {
  Env& env = SystemEnv();
  INFERSCALE_ASSIGN(const auto lock, LockScales(path));
  INFERSCALE_ASSIGN(auto there, FindScales(path, model, scales.shape));
  if (there) return std::move(*there);
  if (const Status removed = env.Remove(path);
      !removed && removed.error().code != Code::kNotFound) {
    return tl::unexpected(removed.error());
  }
  INFERSCALE_ASSIGN(const auto file, env.Create(path));
  INFERSCALE_TRY(file->Append(EncodeKeyScales(scales)));
  INFERSCALE_TRY(file->Sync());
  INFERSCALE_TRY(env.SyncDir(dir));
  return scales;
}

}  // namespace

Result<RecordCodec> RecordCodec::Open(KvCodec codec, Engine& engine, const std::string& dir) {
  const ModelInfo& model = engine.info();
  RecordCodec out(model);
  if (codec == KvCodec::kNone || !model.injection) return out;
  if (model.stores_kv) {
    return Fail(Code::kUnsupported, "the engine stores KV itself, as it is: not as {}",
                KvCodecName(codec));
  }
  out.shape_.dtype = codec == KvCodec::kInt8 ? Dtype::kI8 : Dtype::kF8E4M3;
  const std::string path =
      fmt::format("{}/{}.{}.scales", dir, model.fingerprint.Hex(), DtypeName(out.shape_.dtype));
  INFERSCALE_ASSIGN(auto scales, FindScales(path, model, out.shape_));
  if (!scales) {
    INFERSCALE_ASSIGN(KeyScales made, MakeScales(engine, out.shape_));
    INFERSCALE_ASSIGN(scales, Publish(dir, path, model, std::move(made)));
  }
  out.fingerprint_ = scales->RecordFingerprint();
  out.key_scales_ = std::move(scales->values);
  return out;
}

Result<std::vector<std::byte>> RecordCodec::Pack(EncodedRecord record, uint64_t& clamped) const {
  if (!IsQuantised(shape_.dtype)) return std::move(record.data);
  std::vector<std::byte> packed(record.tokens * shape_.TokenBytes());
  INFERSCALE_ASSIGN(const uint64_t beyond,
                    Quantise({model_shape_, record.tokens, record.data.data()},
                             {shape_, record.tokens, packed.data(), key_scales_.data()}));
  clamped += beyond;
  return packed;
}

FactKvView RecordCodec::View(FactKvView stored) const {
  if (IsQuantised(stored.shape.dtype)) stored.key_scales = key_scales_.data();
  return stored;
}

}  // namespace inferscale
