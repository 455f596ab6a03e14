// The page at `/`: the files of src/server/page, which are part of the binary.
#ifndef INFERSCALE_SERVER_PAGE_H_
#define INFERSCALE_SERVER_PAGE_H_

#include <span>
#include <string_view>
#include <vector>

#include "server/router.h"

namespace inferscale {

struct PageFile {
  std::string_view name;  // "index.html"
  std::string_view bytes;
};
std::span<const PageFile> PageFiles();

// "/", "/page/NAME" and "/favicon.ico", for everybody: they hold nothing of anybody. Their answers
// forbid a browser to run or to load anything else, and to show the page inside another.
std::vector<Route> PageRoutes();

}  // namespace inferscale

#endif  // INFERSCALE_SERVER_PAGE_H_
