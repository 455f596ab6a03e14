#include "embed/llama_embedder.h"

#include <llama.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/llama_runtime.h"
#include "base/mutex.h"
#include "embed/bert_encoder.h"
#include "embed/bert_model.h"
#include "embed/text_encoder.h"

namespace inferscale {
namespace {

constexpr size_t kPackTexts = 64;
constexpr int32_t kMaxContext = 512;

struct ModelDeleter {
  void operator()(llama_model* model) const { llama_model_free(model); }
};
struct ContextDeleter {
  void operator()(llama_context* context) const { llama_free(context); }
};
using ModelPtr = std::unique_ptr<llama_model, ModelDeleter>;
using ContextPtr = std::unique_ptr<llama_context, ContextDeleter>;

// llama_batch with owned arrays.
class Batch {
 public:
  explicit Batch(int32_t tokens) : batch_(llama_batch_init(tokens, 0, 1)) {}
  ~Batch() { llama_batch_free(batch_); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  void Clear() { batch_.n_tokens = 0; }
  void Add(const TokenList& tokens, llama_seq_id sequence) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const int32_t at = batch_.n_tokens++;
      batch_.token[at] = tokens[i];
      batch_.pos[at] = static_cast<llama_pos>(i);
      batch_.n_seq_id[at] = 1;
      batch_.seq_id[at][0] = sequence;
      batch_.logits[at] = 1;
    }
  }
  const llama_batch& get() const { return batch_; }

 private:
  llama_batch batch_;
};

// Hashes the file and checks that it begins like one of its kind.
Result<Hash128> HashModelFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return Fail(Code::kNotFound, "embedding model {}: no such file", path);
  }
  std::ifstream file(path, std::ios::binary);
  std::vector<char> chunk(size_t{1} << 20);
  Hasher hasher;
  hasher.Add("llama embedder 1");
  bool first = true;
  while (file) {
    file.read(chunk.data(), static_cast<std::streamsize>(chunk.size()));
    const std::string_view bytes(chunk.data(), static_cast<size_t>(file.gcount()));
    if (first && !bytes.starts_with("GGUF") && (file || file.eof())) {
      return Fail(Code::kCorrupt, "embedding model {}: not a GGUF file", path);
    }
    first = false;
    hasher.Add(bytes);
  }
  if (!file.eof()) return Fail(Code::kTransient, "embedding model {}: can't be read", path);
  return hasher.Digest();
}

Result<ModelPtr> LoadModel(const std::string& path, bool vocab_only) {
  TakeLlamaError();
  llama_model_params params = llama_model_default_params();
  params.n_gpu_layers = 0;
  params.vocab_only = vocab_only;
  ModelPtr model(llama_model_load_from_file(path.c_str(), params));
  if (model == nullptr) {
    const std::string reason = TakeLlamaError();
    const bool unknown = reason.find("unknown model architecture") != std::string::npos;
    return Fail(unknown ? Code::kUnsupported : Code::kCorrupt, "embedding model {}: {}", path,
                reason.empty() ? "libllama can't load it" : reason);
  }
  return model;
}

// Where the run of texts from `begin` ends that are computed together.
size_t EndOfPack(std::span<const TokenList> texts, size_t begin) {
  size_t end = begin;
  for (size_t total = 0; end < texts.size() && end - begin < kPackTexts; ++end) {
    total += texts[end].size();
    if (end > begin && total > kPackTokens) break;
  }
  return end;
}

// libllama, for every other model.
class LlamaEncoder final : public TextEncoder {
 public:
  LlamaEncoder(const llama_model* model, ContextPtr context, std::string name)
      : name_(std::move(name)),
        dims_(static_cast<uint32_t>(llama_model_n_embd_out(model))),
        max_tokens_(static_cast<size_t>(llama_n_batch(context.get()))),
        context_(std::move(context)),
        batch_(static_cast<int32_t>(max_tokens_)) {}

  uint32_t dims() const override { return dims_; }
  size_t max_tokens() const override { return max_tokens_; }

  Result<std::vector<std::vector<float>>> Run(std::span<const TokenList> texts) override {
    std::vector<std::vector<float>> vectors;
    vectors.reserve(texts.size());
    MutexLock lock(mutex_);
    for (size_t begin = 0; begin < texts.size();) {
      const size_t end = EndOfPack(texts, begin);
      INFERSCALE_TRY(RunPack(texts.subspan(begin, end - begin), vectors));
      begin = end;
    }
    return vectors;
  }

 private:
  // Appends one vector per text.
  Status RunPack(std::span<const TokenList> texts, std::vector<std::vector<float>>& vectors)
      REQUIRES(mutex_) {
    batch_.Clear();
    for (size_t i = 0; i < texts.size(); ++i) batch_.Add(texts[i], static_cast<llama_seq_id>(i));
    // Models with causal attention keep a cache, others have none.
    if (llama_memory_t memory = llama_get_memory(context_.get())) llama_memory_clear(memory, false);
    if (const int32_t code = llama_decode(context_.get(), batch_.get()); code != 0) {
      return Fail(Code::kInternal, "embedding model {}: libllama failed with code {}", name_, code);
    }
    for (size_t i = 0; i < texts.size(); ++i) {
      const float* pooled = llama_get_embeddings_seq(context_.get(), static_cast<llama_seq_id>(i));
      if (pooled == nullptr) {
        return Fail(Code::kInternal, "embedding model {}: libllama gave no vector", name_);
      }
      vectors.emplace_back(pooled, pooled + dims_);
    }
    return {};
  }

  const std::string name_;
  const uint32_t dims_;
  const size_t max_tokens_;
  Mutex mutex_;
  const ContextPtr context_;  // used under mutex_
  Batch batch_ GUARDED_BY(mutex_);
};

class LlamaEmbedder final : public Embedder {
 public:
  LlamaEmbedder(ModelPtr model, std::unique_ptr<TextEncoder> encoder, const Hash128& identity,
                std::string name)
      : identity_(identity),
        name_(std::move(name)),
        vocab_(llama_model_get_vocab(model.get())),
        model_(std::move(model)),
        encoder_(std::move(encoder)) {}

  uint32_t dims() const override { return encoder_->dims(); }
  Hash128 identity() const override { return identity_; }
  std::string name() const override { return name_; }

  Result<std::vector<std::vector<float>>> Embed(std::span<const std::string> texts) override {
    std::vector<TokenList> tokens;
    tokens.reserve(texts.size());
    for (const std::string& text : texts) {
      INFERSCALE_ASSIGN(TokenList list, Tokenize(text));
      tokens.push_back(std::move(list));
    }
    INFERSCALE_ASSIGN(auto vectors, encoder_->Run(tokens));
    for (std::vector<float>& vector : vectors) {
      double squares = 0;
      for (const float value : vector) squares += double{value} * double{value};
      if (!std::isfinite(squares) || squares <= 0) {
        return Fail(Code::kInternal, "embedding model {}: a vector has no direction", name_);
      }
      const auto scale = static_cast<float>(1.0 / std::sqrt(squares));
      for (float& value : vector) value *= scale;
    }
    return vectors;
  }

  uint32_t CountTokens(const std::string& text) const override {
    const auto tokens = Tokenize(text);
    return tokens ? static_cast<uint32_t>(tokens->size()) : 0;
  }

 private:
  // Cut to the context; a closing [SEP] stays.
  Result<TokenList> Tokenize(const std::string& text) const {
    TokenList tokens(text.size() + 2);  // a byte makes at most one token
    const int32_t count =
        llama_tokenize(vocab_, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                       static_cast<int32_t>(tokens.size()), /*add_special=*/true,
                       /*parse_special=*/false);
    if (count <= 0) {
      return Fail(Code::kInternal, "embedding model {}: tokenizing {} bytes failed", name_,
                  text.size());
    }
    tokens.resize(static_cast<size_t>(count));
    if (const size_t most = encoder_->max_tokens(); tokens.size() > most) {
      const bool closes = llama_vocab_get_add_sep(vocab_) || llama_vocab_get_add_eos(vocab_);
      if (closes) tokens[most - 1] = tokens.back();
      tokens.resize(most);
    }
    return tokens;
  }

  const Hash128 identity_;
  const std::string name_;
  const llama_vocab* const vocab_;
  const ModelPtr model_;
  const std::unique_ptr<TextEncoder> encoder_;
};

Result<std::unique_ptr<TextEncoder>> MakeLlamaEncoder(llama_model* model, int threads,
                                                      const std::string& path) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch =
      static_cast<uint32_t>(std::clamp(llama_model_n_ctx_train(model), 1, kMaxContext));
  params.n_seq_max = kPackTexts;
  params.kv_unified = true;  // one text may use the whole context
  params.embeddings = true;
  params.pooling_type = LLAMA_POOLING_TYPE_UNSPECIFIED;  // the model's own
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
  params.no_perf = true;
  params.n_threads = params.n_threads_batch = threads;
  ContextPtr context(llama_init_from_model(model, params));
  if (context == nullptr) {
    return Fail(Code::kUnsupported, "embedding model {}: {}", path, TakeLlamaError());
  }
  const enum llama_pooling_type pooling = llama_pooling_type(context.get());
  if (pooling != LLAMA_POOLING_TYPE_MEAN && pooling != LLAMA_POOLING_TYPE_CLS &&
      pooling != LLAMA_POOLING_TYPE_LAST) {
    return Fail(Code::kUnsupported,
                "embedding model {}: it does not pool its tokens to one vector (it may be a chat "
                "model)",
                path);
  }
  return std::make_unique<LlamaEncoder>(model, std::move(context),
                                        std::filesystem::path(path).stem().string());
}

}  // namespace

Result<std::unique_ptr<Embedder>> OpenLlamaEmbedder(const LlamaEmbedderOptions& options) {
  InitLlamaRuntime();
  const std::string& path = options.model_path;
  INFERSCALE_ASSIGN(const Hash128 identity, HashModelFile(path));
  const int threads = options.threads > 0
                          ? options.threads
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::unique_ptr<BertModel> bert;
  if (options.bert != BertArithmetic::kLibllama) {
    const bool fastest = options.bert == BertArithmetic::kFastest;
    bert = BertModel::Load(path, kMaxContext, fastest ? FastestPrecision() : BertPrecision::kFloat);
  }
  INFERSCALE_ASSIGN(ModelPtr model, LoadModel(path, /*vocab_only=*/bert != nullptr));
  std::unique_ptr<TextEncoder> encoder;
  if (bert != nullptr) {
    const auto tokens =
        static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model.get())));
    if (tokens != bert->vocabulary()) {
      return Fail(Code::kCorrupt, "embedding model {}: {} tokens with {} vectors", path, tokens,
                  bert->vocabulary());
    }
    encoder = std::make_unique<BertEncoder>(std::move(bert), threads);
  } else {
    INFERSCALE_ASSIGN(encoder, MakeLlamaEncoder(model.get(), threads, path));
  }
  return std::make_unique<LlamaEmbedder>(std::move(model), std::move(encoder), identity,
                                         std::filesystem::path(path).stem().string());
}

}  // namespace inferscale
