// Quantised KV through the application: the same walks, other bytes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "app/record_codec.h"
#include "toy_models.h"

namespace inferscale {
namespace {

namespace fs = std::filesystem;

class CodecTest : public ::testing::TestWithParam<KvCodec> {
 protected:
  void SetUp() override {
    std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(name.begin(), name.end(), '/', '-');
    dir_ = fs::temp_directory_path() / ("inferscale-codec-" + std::to_string(getpid()) + name);
    fs::remove_all(dir_);
  }
  void TearDown() override {
    app_.reset();
    fs::remove_all(dir_);
  }

  void Open(KvCodec codec) {
    app_.reset();
    AppOptions options;
    options.data_dir = dir_.string();
    options.episode_facts = 6;
    options.window = {WindowKind::kWindow, {4}};
    options.arena_bytes = 16 << 20;
    options.system = "sys";
    options.kv_codec = codec;
    auto opened = OpenApp(options, ToyModels(log_, "toy"));
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    app_ = std::move(*opened);
  }

  void Add(int count) {
    std::vector<Fact> facts;
    for (int i = 0; i < count; ++i) {
      Fact fact;
      fact.scope.user = "ana";
      fact.text = "topic number" + std::to_string(i) + " is remembered";
      facts.push_back(fact);
    }
    ASSERT_TRUE(app_->Add(facts).has_value());
  }

  uint64_t Encode() {
    const auto progress = app_->EncodePending(nullptr, {});
    EXPECT_TRUE(progress.has_value()) << progress.error().message;
    EXPECT_EQ(progress->failed, 0U);
    return progress->episodes_done;
  }

  // How many of 12 facts were injected, each with the KV of its own tokens.
  size_t Injected() {
    AskRequest request;
    request.scope.user = "ana";
    request.question = "number7";
    request.compose.facts = 12;
    request.compose.plain_last = 0;
    const auto answer = app_->Ask(request, nullptr);
    EXPECT_TRUE(answer.has_value());
    EXPECT_EQ(log_->wrong_rows, 0U);
    return static_cast<size_t>(std::count_if(answer->facts.begin(), answer->facts.end(),
                                             [](const UsedFact& fact) { return fact.injected; }));
  }

  fs::path ScalesFile() {
    for (const auto& entry : fs::directory_iterator(dir_ / "kv")) {
      if (entry.path().extension() == ".scales") return entry.path();
    }
    return {};
  }
  static std::string Read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void Write(const fs::path& path, ByteSpan bytes) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }

  fs::path dir_;
  std::shared_ptr<ToyLog> log_ = std::make_shared<ToyLog>();
  std::unique_ptr<App> app_;
};

INSTANTIATE_TEST_SUITE_P(All, CodecTest, ::testing::Values(KvCodec::kInt8, KvCodec::kFp8),
                         [](const auto& test) { return std::string(KvCodecName(test.param)); });

TEST_P(CodecTest, FactsAreInjectedFromSmallerRecords) {
  Open(KvCodec::kNone);
  Add(24);
  Encode();
  const uint64_t plain = app_->Stats()->record_shape->TokenBytes();
  EXPECT_EQ(Injected(), 12U);

  Open(GetParam());
  const AppStats stats = *app_->Stats();
  EXPECT_EQ(stats.record_shape->TokenBytes(), plain / 2 + 2 * sizeof(float));  // layers of one head
  EXPECT_EQ(stats.facts.episodes_encoded, 0U);
  EXPECT_EQ(Injected(), 0U);  // the others are of another fingerprint
  EXPECT_EQ(Encode(), 4U);
  EXPECT_EQ(app_->Stats()->facts.episodes_encoded, 4U);
  EXPECT_EQ(Injected(), 12U);

  Open(KvCodec::kNone);  // both are there
  EXPECT_EQ(*app_->PendingEpisodes(), 0U);
  EXPECT_EQ(Injected(), 12U);
}

TEST_P(CodecTest, LostOrDamagedScalesComeOutTheSame) {
  Open(GetParam());
  Add(24);
  Encode();
  const std::string scales = Read(ScalesFile());
  std::string damaged = scales;
  damaged[damaged.size() / 2] ^= 1;
  for (const auto& harm :
       {+[](const fs::path&path, const std::string&) { fs::remove(path); },
        +[](const fs::path&path, const std::string&bytes) { Write(path, AsBytes(bytes)); }}) {
    const fs::path path = ScalesFile();
    app_.reset();
    harm(path, damaged);
    Open(GetParam());
    EXPECT_EQ(ScalesFile(), path);
    EXPECT_EQ(Read(path), scales);
    EXPECT_EQ(*app_->PendingEpisodes(), 0U);
    EXPECT_EQ(Injected(), 12U);
  }
}

// As if the scales were lost and another build's calibration had made others.
TEST_P(CodecTest, UnderOtherScalesEverythingIsEncodedAgain) {
  Open(GetParam());
  Add(24);
  Encode();
  KeyScales scales = *ParseKeyScales(AsBytes(Read(ScalesFile())));
  for (float& scale : scales.values) scale *= 2;
  const fs::path path = ScalesFile();
  app_.reset();
  Write(path, EncodeKeyScales(scales));
  Open(GetParam());
  EXPECT_EQ(Injected(), 0U);
  EXPECT_EQ(Encode(), 4U);
  EXPECT_EQ(Injected(), 12U);
}

TEST_P(CodecTest, CalibrationRunsOnceForAModel) {
  Open(GetParam());
  EXPECT_GT(log_->encoded_tokens, 1000U);
  const uint64_t before = log_->encoded_tokens;
  Open(GetParam());
  EXPECT_EQ(log_->encoded_tokens, before);
}

TEST(KvCodecName, RoundTrips) {
  for (const KvCodec codec : {KvCodec::kNone, KvCodec::kInt8, KvCodec::kFp8}) {
    EXPECT_EQ(ParseKvCodec(KvCodecName(codec)), codec);
  }
  EXPECT_EQ(ParseKvCodec("int4").error().code, Code::kInvalid);
}

}  // namespace
}  // namespace inferscale
