#include "server/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inferscale {
namespace {

using ::testing::ElementsAre;

Router Table() {
  const auto route = [](const char* method, const char* path) {
    return Route{method, path, Access::kRead, "", nullptr};
  };
  return Router({route("GET", "/"), route("GET", "/facts/all"), route("GET", "/facts/{id}"),
                 route("PUT", "/facts/{id}"), route("GET", "/of/{type}/{name}/x")});
}

// The route's path and what its names stand for; or the methods that are taken; or "-".
std::vector<std::string> Find(const std::string& method, const std::string& path) {
  static const Router router = Table();
  const auto found = router.Find(method, path);
  if (const auto* match = std::get_if<RouteMatch>(&found)) {
    std::vector<std::string> out = {match->route->path};
    out.insert(out.end(), match->params.begin(), match->params.end());
    return out;
  }
  if (const auto* wrong = std::get_if<WrongMethod>(&found)) return {wrong->allowed};
  return {"-"};
}

TEST(Router, FindsByMethodAndPath) {
  EXPECT_THAT(Find("GET", "/"), ElementsAre("/"));
  EXPECT_THAT(Find("GET", "/facts/7"), ElementsAre("/facts/{id}", "7"));
  EXPECT_THAT(Find("GET", "/facts/7/"), ElementsAre("/facts/{id}", "7"));
  EXPECT_THAT(Find("GET", "/facts/all"), ElementsAre("/facts/all"));  // the first one
  EXPECT_THAT(Find("GET", "/of/user/ana/x"), ElementsAre("/of/{type}/{name}/x", "user", "ana"));
}

TEST(Router, TellsAWrongMethodFromAWrongPath) {
  EXPECT_THAT(Find("POST", "/facts/7"), ElementsAre("GET, PUT"));
  EXPECT_THAT(Find("get", "/facts/7"), ElementsAre("GET, PUT"));
  for (const char* path : {"", "facts/7", "/facts", "/facts/", "/facts//", "//facts/7",
                           "/facts/7//", "/facts/7/8", "/Facts/7", "*", "http://x/facts/7"}) {
    EXPECT_THAT(Find("GET", path), ElementsAre("-")) << path;
  }
}

TEST(Router, SegmentsAreDecodedAfterThePathIsCut) {
  EXPECT_THAT(Find("GET", "/facts/a%2Fb%20c"), ElementsAre("/facts/{id}", "a/b c"));
  EXPECT_THAT(Find("GET", "/facts/..%2f..%2fetc"), ElementsAre("/facts/{id}", "../../etc"));
  EXPECT_THAT(Find("GET", "/facts/%2e%2e"), ElementsAre("/facts/{id}", ".."));
  EXPECT_THAT(Find("GET", "/facts/%c3%a9"), ElementsAre("/facts/{id}", "\xC3\xA9"));
  for (const char* path : {"/facts/%", "/facts/%4", "/facts/%zz", "/facts/%ff", "/facts/%c0%af"}) {
    EXPECT_THAT(Find("GET", path), ElementsAre("-")) << path;
  }
}

TEST(QueryParams, AreDecoded) {
  const auto query = QueryParams::Parse("a=1&b=x+y%26&&c&d=");
  ASSERT_TRUE(query);
  EXPECT_EQ(query->Find("a"), "1");
  EXPECT_EQ(query->Find("b"), "x y&");
  EXPECT_EQ(query->Find("c"), "");
  EXPECT_EQ(query->Find("d"), "");
  EXPECT_EQ(query->Find("e"), std::nullopt);
  EXPECT_TRUE(QueryParams::Parse("")->all().empty());
  for (const char* bad : {"a=%", "a=%f", "%g=1", "a=%ff", "a=1&a=2"}) {
    EXPECT_FALSE(QueryParams::Parse(bad)) << bad;
  }
}

}  // namespace
}  // namespace inferscale
