#include <gtest/gtest.h>

#include <random>

#include "base/http/sse.h"
#include "base/http/url.h"

namespace inferscale {
namespace {

std::vector<std::string> Events(std::string_view stream, std::mt19937* random) {
  SseParser parser;
  std::vector<std::string> events;
  while (!stream.empty()) {
    const size_t step = random == nullptr ? stream.size() : 1 + (*random)() % 5;
    parser.Add(stream.substr(0, step));
    stream.remove_prefix(std::min(step, stream.size()));
    while (true) {
      const auto event = parser.Next().value();
      if (!event) break;
      events.push_back(*event);
    }
  }
  return events;
}

TEST(Sse, ReadsWhatTheStandardSays) {
  EXPECT_EQ(Events("data: one\n\ndata:two\n\n", nullptr), (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(Events("data: a\r\ndata: b\r\n\r\n", nullptr), std::vector<std::string>{"a\nb"});
  EXPECT_EQ(Events("data: a\rdata: b\r\r\n", nullptr), std::vector<std::string>{"a\nb"});
  EXPECT_EQ(Events(": comment\nevent: x\nid: 1\ndata\n\n\n\n", nullptr),
            std::vector<std::string>{""});
  EXPECT_TRUE(Events("data: without an end\n", nullptr).empty());
  EXPECT_EQ(Events(MakeSseEvent("{\"a\": 1}"), nullptr), std::vector<std::string>{"{\"a\": 1}"});
}

TEST(Sse, CutsDoNotMatter) {
  const std::string stream =
      "data: first\n\n: note\r\ndata: second\r\ndata: line\r\n\r\ndata: third \xc3\xa9\r\r\n";
  const auto whole = Events(stream, nullptr);
  ASSERT_EQ(whole.size(), 3U);
  std::mt19937 random(7);
  RecordProperty("seed", 7);
  for (int round = 0; round < 500; ++round) EXPECT_EQ(Events(stream, &random), whole);
}

TEST(Sse, EndlessEventsAreRefused) {
  SseParser parser(100);
  parser.Add("data: " + std::string(200, 'x'));
  EXPECT_EQ(parser.Next().error().code, Code::kCorrupt);
  SseParser lines(100);
  for (int i = 0; i < 30; ++i) lines.Add("data: 12345\n");
  EXPECT_EQ(lines.Next().error().code, Code::kCorrupt);
}

TEST(HttpUrl, Parts) {
  const auto url = ParseHttpUrl("http://[::1]:8000/a/b/").value();
  EXPECT_EQ(url.host, "::1");
  EXPECT_EQ(url.port, "8000");
  EXPECT_EQ(url.path, "/a/b");
  EXPECT_EQ(url.Authority(), "[::1]:8000");
  EXPECT_EQ(ParseHttpUrl("http://host").value().Authority(), "host:80");
  for (const char* bad : {"host", "http://", "http://h:x", "http://h:123456", "http://a b"}) {
    EXPECT_EQ(ParseHttpUrl(bad).error().code, Code::kInvalid) << bad;
  }
}

}  // namespace
}  // namespace inferscale
