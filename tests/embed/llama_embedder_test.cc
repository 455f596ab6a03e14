#include "embed/llama_embedder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "embedder_contract.h"

namespace inferscale {
namespace {

using ::testing::HasSubstr;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

class LlamaEmbedderTest : public ::testing::Test {
 protected:
  static std::string Model(const char* variable) {
    const char* path = std::getenv(variable);
    return path == nullptr ? "" : path;
  }
  void SetUp() override {
    if (Model("INFERSCALE_EMBED_MODEL").empty()) {
      GTEST_SKIP() << "INFERSCALE_EMBED_MODEL is not set; see scripts/setup.sh";
    }
  }
  static std::unique_ptr<Embedder> Open() {
    auto embedder = OpenLlamaEmbedder({Model("INFERSCALE_EMBED_MODEL"), 2});
    EXPECT_TRUE(embedder) << embedder.error().message;
    return embedder ? std::move(*embedder) : nullptr;
  }
  // Opening a file with these bytes must fail.
  Error OpenBytes(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    auto embedder = OpenLlamaEmbedder({path_, 1});
    EXPECT_FALSE(embedder);
    return embedder ? Error{} : embedder.error();
  }
  void TearDown() override { std::filesystem::remove(path_); }

  const std::string path_ =
      ::testing::TempDir() + "embedder_" + std::to_string(::getpid()) + ".gguf";
};

TEST_F(LlamaEmbedderTest, KeepsTheContract) {
  const auto embedder = Open();
  ASSERT_NE(embedder, nullptr);
  CheckEmbedderContract(*embedder);
}

TEST_F(LlamaEmbedderTest, AgreesWithTheOriginalModel) {
  const auto embedder = Open();
  ASSERT_NE(embedder, nullptr);
  EXPECT_EQ(embedder->dims(), 384U);
  const auto cases = boost::json::parse(ReadFile(MINILM_REFERENCE)).as_array();
  ASSERT_EQ(cases.size(), 10U);
  for (const auto& item : cases) {
    const std::string text(item.at("text").as_string());
    std::vector<float> expected;
    for (const auto& value : item.at("vector").as_array()) {
      expected.push_back(value.to_number<float>());
    }
    const auto vector = embedder->EmbedOne(text);
    ASSERT_TRUE(vector) << vector.error().message;
    const double cosine = Dot(*vector, expected);
    std::printf("cosine %.6f  %.40s\n", cosine, text.c_str());
    EXPECT_GE(cosine, 0.99) << text;
  }
}

TEST_F(LlamaEmbedderTest, OwnKernelsAgreeWithLibllama) {
  const auto with = [](BertArithmetic bert) {
    return OpenLlamaEmbedder({Model("INFERSCALE_EMBED_MODEL"), 1, bert});
  };
  const auto fastest = Open();
  const auto floats = with(BertArithmetic::kFloat);
  const auto libllama = with(BertArithmetic::kLibllama);
  ASSERT_TRUE(fastest && floats && libllama);
  CheckEmbedderContract(**libllama);
  EXPECT_EQ(fastest->identity(), (*libllama)->identity());
  std::vector<std::string> texts = {"", "Ana moved to Oslo in May.", "\U0001f600 and 5,000 others"};
  for (int i = 0; i < 600; ++i) texts.front() += i % 3 == 0 ? " tea and" : " rain,";  // cut
  const auto theirs = (*libllama)->Embed(texts);
  const auto by_floats = (*floats)->Embed(texts);
  const auto by_fastest = fastest->Embed(texts);
  ASSERT_TRUE(theirs && by_floats && by_fastest);
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_GT(Dot((*by_floats)[i], (*theirs)[i]), 0.9999) << i;
    EXPECT_GT(Dot((*by_fastest)[i], (*theirs)[i]), 0.995) << i;
  }
}

TEST_F(LlamaEmbedderTest, NearInMeaningIsNearInSpace) {
  const auto embedder = Open();
  ASSERT_NE(embedder, nullptr);
  const std::vector<std::string> texts = {"Where does my sister work?",
                                          "Ana, my sister, is a nurse at the city hospital.",
                                          "The recipe needs two cups of flour."};
  const auto vectors = embedder->Embed(texts);
  ASSERT_TRUE(vectors) << vectors.error().message;
  EXPECT_GT(Dot((*vectors)[0], (*vectors)[1]), Dot((*vectors)[0], (*vectors)[2]) + 0.2);
}

TEST_F(LlamaEmbedderTest, CutsWhatIsLongerThanTheContext) {
  const auto embedder = Open();
  ASSERT_NE(embedder, nullptr);
  std::string text = "The library opens at nine.";
  for (int i = 0; i < 600; ++i) text += " tea";
  const auto cut = embedder->EmbedOne(text);
  ASSERT_TRUE(cut) << cut.error().message;
  const auto cut_again = embedder->EmbedOne(text + " and nobody reads this end");
  ASSERT_TRUE(cut_again) << cut_again.error().message;
  EXPECT_EQ(*cut, *cut_again);
}

TEST_F(LlamaEmbedderTest, ControlTokensInTextAreText) {
  const auto embedder = Open();
  ASSERT_NE(embedder, nullptr);
  const auto marked = embedder->EmbedOne("[SEP]");
  const auto spelled = embedder->EmbedOne("[ sep ]");
  ASSERT_TRUE(marked && spelled);
  EXPECT_GT(Dot(*marked, *spelled), 0.9999);  // the same five pieces, as in any other word
}

TEST_F(LlamaEmbedderTest, IdentityIsTheFile) {
  const auto one = Open();
  const auto two = Open();
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one->identity(), two->identity());
  // A byte in the name changes the file, not the model.
  std::string bytes = ReadFile(Model("INFERSCALE_EMBED_MODEL"));
  const size_t at = bytes.find("all-MiniLM-L6-v2");
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 'A';
  std::ofstream(path_, std::ios::binary) << bytes;
  const auto other = OpenLlamaEmbedder({path_, 1});
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_NE((*other)->identity(), one->identity());
}

TEST_F(LlamaEmbedderTest, MissingFileIsNamed) {
  const auto embedder = OpenLlamaEmbedder({"/nowhere/model.gguf", 1});
  ASSERT_FALSE(embedder);
  EXPECT_EQ(embedder.error().code, Code::kNotFound);
  EXPECT_THAT(embedder.error().message, HasSubstr("/nowhere/model.gguf"));
}

TEST_F(LlamaEmbedderTest, DamagedFilesAreNamed) {
  const std::string whole = ReadFile(Model("INFERSCALE_EMBED_MODEL"));
  for (const size_t size : {size_t{0}, size_t{3}, size_t{4}, size_t{20}, size_t{1000},
                            whole.size() / 2, whole.size() - 1}) {
    const Error error = OpenBytes(whole.substr(0, size));
    EXPECT_EQ(error.code, Code::kCorrupt) << size << ": " << error.message;
    EXPECT_THAT(error.message, HasSubstr(path_));
  }
  EXPECT_THAT(OpenBytes("not a model at all").message, HasSubstr("not a GGUF file"));
}

TEST_F(LlamaEmbedderTest, UnknownArchitectureIsUnsupported) {
  std::string bytes = ReadFile(Model("INFERSCALE_EMBED_MODEL"));
  const std::string key = "general.architecture";
  const size_t at = bytes.find("bert", bytes.find(key));
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 4, "burt");
  const Error error = OpenBytes(bytes);
  EXPECT_EQ(error.code, Code::kUnsupported) << error.message;
  EXPECT_THAT(error.message, HasSubstr("burt"));
}

TEST_F(LlamaEmbedderTest, ChatModelIsUnsupported) {
  const std::string chat = Model("INFERSCALE_MODEL");
  if (chat.empty()) GTEST_SKIP() << "INFERSCALE_MODEL is not set; see scripts/setup.sh";
  const auto embedder = OpenLlamaEmbedder({chat, 1});
  ASSERT_FALSE(embedder);
  EXPECT_EQ(embedder.error().code, Code::kUnsupported);
  EXPECT_THAT(embedder.error().message, HasSubstr(chat));
}

}  // namespace
}  // namespace inferscale
