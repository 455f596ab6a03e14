// Files that are no chat model give errors that name them, and never end the process.
#include "engine/llama/model_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "engine/llama/llama_engine.h"

namespace inferscale {
namespace {

namespace fs = std::filesystem;

class ModelFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              ("model_file_" + std::to_string(::getpid()) + "_" +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
    const char* model = std::getenv("INFERSCALE_MODEL");
    if (model != nullptr) model_ = model;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return (folder_ / name).string();
  }
  std::string FirstBytes(size_t count) const {
    std::string bytes(count, '\0');
    std::ifstream(model_, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(count));
    return bytes;
  }
  static Error OpenError(const std::string& path) {
    LlamaEngineOptions options;
    options.model_path = path;
    options.threads = 1;
    auto engine = OpenLlamaEngine(options);
    EXPECT_FALSE(engine);
    return engine ? Error{} : engine.error();
  }
  static void ExpectError(const std::string& path, Code code, const std::string& part) {
    const Error error = OpenError(path);
    EXPECT_EQ(error.code, code) << error.message;
    EXPECT_NE(error.message.find(path), std::string::npos) << error.message;
    EXPECT_NE(error.message.find(part), std::string::npos) << error.message;
  }

  fs::path folder_;
  std::string model_;
};

TEST_F(ModelFileTest, MissingOrForeignFile) {
  ExpectError((folder_ / "none.gguf").string(), Code::kNotFound, "No such file");
  ExpectError(Write("text.gguf", "This is no model."), Code::kInvalid, "not a GGUF file");
  ExpectError(Write("empty.gguf", ""), Code::kInvalid, "not a GGUF file");
  ExpectError(Write("short.gguf", "GGUF"), Code::kCorrupt, "damaged or cut off");
  ExpectError(Write("noise.gguf", "GGUF" + std::string(5000, '\xA7')), Code::kCorrupt, "damaged");
}

TEST_F(ModelFileTest, TruncatedModel) {
  if (model_.empty()) GTEST_SKIP() << "INFERSCALE_MODEL is not set";
  ExpectError(Write("header.gguf", FirstBytes(4000)), Code::kCorrupt, "damaged or cut off");
  const size_t size = 20 << 20;
  ExpectError(Write("tensors.gguf", FirstBytes(size)), Code::kCorrupt,
              "has " + std::to_string(size) + " bytes, but tensor");
}

TEST_F(ModelFileTest, EmbeddingModelIsNoChatModel) {
  const char* model = std::getenv("INFERSCALE_EMBED_MODEL");
  if (model == nullptr) GTEST_SKIP() << "INFERSCALE_EMBED_MODEL is not set";
  ExpectError(model, Code::kUnsupported, "architecture bert makes embeddings");
}

TEST_F(ModelFileTest, UnknownRopeScaling) {
  GgufPtr gguf(gguf_init_empty());
  gguf_set_val_str(gguf.get(), "general.architecture", "llama");
  gguf_set_val_str(gguf.get(), "llama.rope.scaling.type", "spiral");
  const std::string path = (folder_ / "spiral.gguf").string();
  ASSERT_TRUE(gguf_write_to_file(gguf.get(), path.c_str(), true));
  ExpectError(path, Code::kUnsupported, "RoPE scaling of type spiral");
}

TEST_F(ModelFileTest, LayersOfDifferentHeads) {
  GgufPtr gguf(gguf_init_empty());
  gguf_set_val_str(gguf.get(), "general.architecture", "openelm");
  const int32_t heads[] = {3, 3, 4};
  gguf_set_arr_data(gguf.get(), "openelm.attention.head_count_kv", GGUF_TYPE_INT32, heads, 3);
  const std::string path = (folder_ / "heads.gguf").string();
  ASSERT_TRUE(gguf_write_to_file(gguf.get(), path.c_str(), true));
  ExpectError(path, Code::kUnsupported, "architecture openelm has layers of different KV heads");
}

TEST_F(ModelFileTest, HashSeesMetadataAndWeights) {
  const auto write = [&](const char* name, const char* key, float weight) {
    ggml_init_params params{.mem_size = 1 << 20, .mem_buffer = nullptr, .no_alloc = false};
    ggml_context* context = ggml_init(params);
    ggml_tensor* tensor = ggml_new_tensor_1d(context, GGML_TYPE_F32, 20000);
    ggml_set_name(tensor, "blk.0.weight");
    std::fill_n(static_cast<float*>(tensor->data), 20000, 0.5F);
    static_cast<float*>(tensor->data)[19999] = weight;
    GgufPtr gguf(gguf_init_empty());
    gguf_set_val_str(gguf.get(), "general.name", key);
    gguf_add_tensor(gguf.get(), tensor);
    const std::string path = (folder_ / name).string();
    EXPECT_TRUE(gguf_write_to_file(gguf.get(), path.c_str(), false));
    ggml_free(context);
    auto file = ModelFile::Open(path);
    EXPECT_TRUE(file) << file.error().message;
    return file->Hash().value();
  };
  const Hash128 hash = write("a", "one", 1);
  EXPECT_EQ(hash, write("b", "one", 1));
  EXPECT_NE(hash, write("c", "two", 1));
  EXPECT_NE(hash, write("d", "one", 2));
}

}  // namespace
}  // namespace inferscale
