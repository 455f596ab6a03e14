#include "embed/bert_model.h"

#include <ggml.h>
#include <gguf.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "embed/bert_kernels.h"

namespace inferscale {
namespace {

constexpr int64_t kMeanPooling = 1;  // of llama.cpp's enum llama_pooling_type
constexpr int64_t kClsPooling = 2;

struct GgufDeleter {
  void operator()(gguf_context* gguf) const { gguf_free(gguf); }
};
struct GgmlDeleter {
  void operator()(ggml_context* context) const { ggml_free(context); }
};

// A GGUF in memory. Whatever is not there or not of the expected form makes it bad().
class GgufFile {
 public:
  GgufFile(const std::string& path, bool with_tensors) {
    ggml_context* tensors = nullptr;
    gguf_.reset(gguf_init_from_file(path.c_str(), {.no_alloc = !with_tensors, .ctx = &tensors}));
    tensors_.reset(tensors);
    bad_ = gguf_ == nullptr || tensors_ == nullptr;
  }

  bool bad() const { return bad_; }
  // Every tensor of the file was asked for.
  bool AllRead() const { return !bad_ && known_ == gguf_get_n_tensors(gguf_.get()); }

  std::string String(const char* key) {
    const int64_t id = Find(key, GGUF_TYPE_STRING);
    return id < 0 ? "" : gguf_get_val_str(gguf_.get(), id);
  }
  size_t Size(const char* key) {
    const int64_t id = Find(key, GGUF_TYPE_UINT32);
    return id < 0 ? 0 : gguf_get_val_u32(gguf_.get(), id);
  }
  float Float(const char* key) {
    const int64_t id = Find(key, GGUF_TYPE_FLOAT32);
    return id < 0 ? 0.0F : gguf_get_val_f32(gguf_.get(), id);
  }
  bool IsTrue(const char* key) {
    const int64_t id = bad_ ? -1 : gguf_find_key(gguf_.get(), key);
    return id >= 0 && gguf_get_kv_type(gguf_.get(), id) == GGUF_TYPE_BOOL &&
           gguf_get_val_bool(gguf_.get(), id);
  }

  // A tensor of `rows` rows of `columns`, or null; rows 0: any number.
  const ggml_tensor* Tensor(const std::string& name, size_t rows, size_t columns) {
    const ggml_tensor* tensor = bad_ ? nullptr : ggml_get_tensor(tensors_.get(), name.c_str());
    const bool fits =
        tensor != nullptr && tensor->data != nullptr && ggml_n_dims(tensor) <= 2 &&
        tensor->ne[0] == static_cast<int64_t>(columns) &&
        (rows == 0 || tensor->ne[1] == static_cast<int64_t>(rows)) &&
        (tensor->type == GGML_TYPE_F32 || ggml_get_type_traits(tensor->type)->to_float != nullptr);
    if (!fits) {
      bad_ = true;
      return nullptr;
    }
    ++known_;
    return tensor;
  }
  std::vector<float> Floats(const std::string& name, size_t rows, size_t columns) {
    const ggml_tensor* tensor = Tensor(name, rows, columns);
    if (tensor == nullptr) return {};
    std::vector<float> values(rows * columns);
    ToFloats(tensor->type, tensor->data, values);
    return values;
  }

  static void ToFloats(ggml_type type, const void* from, std::span<float> to) {
    if (type == GGML_TYPE_F32) {
      std::memcpy(to.data(), from, to.size_bytes());
    } else {
      ggml_get_type_traits(type)->to_float(from, to.data(), static_cast<int64_t>(to.size()));
    }
  }

 private:
  int64_t Find(const char* key, gguf_type type) {
    const int64_t id = bad_ ? -1 : gguf_find_key(gguf_.get(), key);
    if (id < 0 || gguf_get_kv_type(gguf_.get(), id) != type) {
      bad_ = true;
      return -1;
    }
    return id;
  }

  std::unique_ptr<gguf_context, GgufDeleter> gguf_;
  std::unique_ptr<ggml_context, GgmlDeleter> tensors_;
  bool bad_ = false;
  int64_t known_ = 0;
};

struct Norm {
  std::vector<float> gain;
  std::vector<float> bias;
};

struct Layer {
  BertLinear qkv, attended, up, down;
  Norm after_attention, after_ffn;
};

// Rows of the vocabulary in the type that the file has them in: most are never used.
struct TokenRows {
  ggml_type type = GGML_TYPE_F32;
  size_t row_bytes = 0;
  std::vector<std::byte> bytes;
};

class Bert final : public BertModel {
 public:
  explicit Bert(BertPrecision precision) : precision_(precision) {}

  static bool IsOne(GgufFile& file) { return file.String("general.architecture") == "bert"; }

  // False if the file is not all that this code knows.
  bool Read(GgufFile& file, size_t max_tokens) {
    dims_ = file.Size("bert.embedding_length");
    heads_ = file.Size("bert.attention.head_count");
    ffn_ = file.Size("bert.feed_forward_length");
    max_tokens_ = file.Size("bert.context_length");
    epsilon_ = file.Float("bert.attention.layer_norm_epsilon");
    const auto pooling = static_cast<int64_t>(file.Size("bert.pooling_type"));
    mean_ = pooling == kMeanPooling;
    const size_t layers = file.Size("bert.block_count");
    const bool known = !file.bad() && (mean_ || pooling == kClsPooling) &&
                       !file.IsTrue("bert.attention.causal") && heads_ > 0 && dims_ > 0 &&
                       dims_ % heads_ == 0 && dims_ / heads_ % kBertPanel == 0 && ffn_ > 0 &&
                       ffn_ % kBertPanel == 0 && dims_ <= 8192 && ffn_ <= 65536 && layers <= 128 &&
                       max_tokens_ > 0 && max_tokens_ <= 65536;
    if (!known) return false;
    const ggml_tensor* tokens = file.Tensor("token_embd.weight", 0, dims_);
    places_ = file.Floats("position_embd.weight", max_tokens_, dims_);
    const std::vector<float> types =
        file.Floats("token_types.weight", file.Size("tokenizer.ggml.token_type_count"), dims_);
    after_embedding_ = ReadNorm(file, "token_embd_norm");
    if (file.bad() || types.size() < dims_) return false;
    max_tokens_ = std::min(max_tokens_, max_tokens);
    places_.resize(max_tokens_ * dims_);
    for (size_t i = 0; i < places_.size(); ++i) places_[i] += types[i % dims_];
    tokens_ = {tokens->type, ggml_row_size(tokens->type, tokens->ne[0]), {}};
    const auto* bytes = static_cast<const std::byte*>(tokens->data);
    tokens_.bytes.assign(bytes, bytes + ggml_nbytes(tokens));
    for (size_t i = 0; i < layers && !file.bad(); ++i) {
      layers_.push_back(ReadLayer(file, "blk." + std::to_string(i) + "."));
    }
    return file.AllRead();
  }

  uint32_t dims() const override { return static_cast<uint32_t>(dims_); }
  size_t max_tokens() const override { return max_tokens_; }
  size_t vocabulary() const override { return tokens_.bytes.size() / tokens_.row_bytes; }

  std::vector<std::vector<float>> Run(std::span<const std::vector<int32_t>> texts) const override {
    size_t rows = 0;
    size_t longest = 0;
    for (const auto& text : texts) {
      rows += text.size();
      longest = std::max(longest, text.size());
    }
    const size_t padded = (longest + kBertPanel - 1) / kBertPanel * kBertPanel;
    const auto x = MakeAligned<float>(rows * dims_);
    const auto wide = MakeAligned<float>(rows * std::max(ffn_, 3 * dims_));
    const auto other = MakeAligned<float>(rows * dims_);
    const auto scratch = MakeAligned<float>((dims_ / heads_ + 1) * padded);
    EmbedTokens(texts, x.get(), other.get());
    AddAndNorm(x.get(), other.get(), rows, after_embedding_.gain, after_embedding_.bias, epsilon_);
    for (const Layer& layer : layers_) {
      ApplyLinear(layer.qkv, x.get(), rows, BertActivation::kNone, wide.get());
      size_t row = 0;
      for (const auto& text : texts) {
        AttendAll(wide.get() + row * 3 * dims_, text.size(), heads_, dims_ / heads_, scratch.get(),
                  other.get() + row * dims_);
        row += text.size();
      }
      ApplyLinear(layer.attended, other.get(), rows, BertActivation::kNone, wide.get());
      AddAndNorm(x.get(), wide.get(), rows, layer.after_attention.gain, layer.after_attention.bias,
                 epsilon_);
      ApplyLinear(layer.up, x.get(), rows, BertActivation::kGelu, wide.get());
      ApplyLinear(layer.down, wide.get(), rows, BertActivation::kNone, other.get());
      AddAndNorm(x.get(), other.get(), rows, layer.after_ffn.gain, layer.after_ffn.bias, epsilon_);
    }
    return Pool(texts, x.get());
  }

 private:
  Norm ReadNorm(GgufFile& file, const std::string& name) const {
    return {file.Floats(name + ".weight", 1, dims_), file.Floats(name + ".bias", 1, dims_)};
  }

  BertLinear ReadLinear(GgufFile& file, std::span<const std::string> names, size_t out,
                        size_t in) const {
    std::vector<float> weights;
    std::vector<float> bias;
    for (const std::string& name : names) {
      const std::vector<float> w = file.Floats(name + ".weight", out, in);
      const std::vector<float> b = file.Floats(name + ".bias", 1, out);
      if (file.bad()) return {};
      weights.insert(weights.end(), w.begin(), w.end());
      bias.insert(bias.end(), b.begin(), b.end());
    }
    return {weights, bias, precision_};
  }

  Layer ReadLayer(GgufFile& file, const std::string& at) const {
    const auto linear = [&](std::vector<std::string> names, size_t out, size_t in) {
      for (std::string& name : names) name.insert(0, at);
      return ReadLinear(file, names, out, in);
    };
    return {linear({"attn_q", "attn_k", "attn_v"}, dims_, dims_),
            linear({"attn_output"}, dims_, dims_),
            linear({"ffn_up"}, ffn_, dims_),
            linear({"ffn_down"}, dims_, ffn_),
            ReadNorm(file, at + "attn_output_norm"),
            ReadNorm(file, at + "layer_output_norm")};
  }

  // Words to `x`, their places to `places`.
  void EmbedTokens(std::span<const std::vector<int32_t>> texts, float* x, float* places) const {
    for (const auto& text : texts) {
      for (const int32_t token : text) {
        const std::byte* row =
            tokens_.bytes.data() + static_cast<size_t>(token) * tokens_.row_bytes;
        GgufFile::ToFloats(tokens_.type, row, {x, dims_});
        x += dims_;
      }
      std::copy_n(places_.data(), text.size() * dims_, places);
      places += text.size() * dims_;
    }
  }

  // The mean of a text's rows, or the first.
  std::vector<std::vector<float>> Pool(std::span<const std::vector<int32_t>> texts,
                                       const float* x) const {
    std::vector<std::vector<float>> vectors;
    vectors.reserve(texts.size());
    for (const auto& text : texts) {
      std::vector<float>& vector = vectors.emplace_back(x, x + dims_);
      for (size_t row = 1; mean_ && row < text.size(); ++row) {
        for (size_t i = 0; i < dims_; ++i) vector[i] += x[row * dims_ + i];
      }
      x += text.size() * dims_;
    }
    return vectors;
  }

  const BertPrecision precision_;
  size_t dims_ = 0;
  size_t heads_ = 0;
  size_t ffn_ = 0;
  size_t max_tokens_ = 0;
  float epsilon_ = 0;
  bool mean_ = true;
  TokenRows tokens_;
  std::vector<float> places_;  // of positions, with the type of a first sentence added
  Norm after_embedding_;
  std::vector<Layer> layers_;
};

}  // namespace

std::unique_ptr<BertModel> BertModel::Load(const std::string& path, size_t max_tokens,
                                           BertPrecision precision) {
  // The tensors of what is no BERT may be many gigabytes.
  if (GgufFile head(path, /*with_tensors=*/false); !Bert::IsOne(head)) return nullptr;
  GgufFile file(path, /*with_tensors=*/true);
  auto model = std::make_unique<Bert>(precision);
  if (!model->Read(file, max_tokens)) return nullptr;
  return model;
}

}  // namespace inferscale
