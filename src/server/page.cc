#include "server/page.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/hash.h"

namespace inferscale {
namespace {

std::string_view ContentType(std::string_view name) {
  const std::string_view end = name.substr(name.rfind('.') + 1);
  if (end == "html") return "text/html; charset=utf-8";
  if (end == "css") return "text/css; charset=utf-8";
  if (end == "js") return "text/javascript; charset=utf-8";
  if (end == "svg") return "image/svg+xml";
  return "application/octet-stream";
}

RouteHandler Serve(const PageFile& file) {
  HttpAnswer whole;
  whole.body = std::string(file.bytes);
  whole.content_type = ContentType(file.name);
  const std::string tag = fmt::format("\"{}\"", HashBytes(AsBytes(file.bytes)).Hex());
  whole.headers = {
      {"ETag", tag},
      {"Cache-Control", "no-cache"},  // kept, but asked about: another build has other files
      {"Content-Security-Policy",
       "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
       "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"},
      {"X-Frame-Options", "DENY"},
      {"Referrer-Policy", "no-referrer"},
      {"Cross-Origin-Opener-Policy", "same-origin"}};
  HttpAnswer same = whole;
  same.status = 304;
  same.body.clear();
  return [whole, same, tag](const Call& call, HttpResponder& responder) {
    // A list of tags, weak ones too; a tag is a hash in quotes, so it is in no other.
    const bool has_it = call.request.if_none_match.find(tag) != std::string::npos;
    responder.Send(has_it ? same : whole);
  };
}

}  // namespace

std::vector<Route> PageRoutes() {
  std::vector<Route> routes;
  for (const PageFile& file : PageFiles()) {
    const bool first = file.name == "index.html";
    routes.push_back({"GET", first ? "/" : fmt::format("/page/{}", file.name), Access::kOpen,
                      "A file of the page", Serve(file)});
    if (file.name == "icon.svg") {
      // What browsers and others ask for by themselves.
      routes.push_back({"GET", "/favicon.ico", Access::kOpen, "The page's icon", Serve(file)});
    }
  }
  return routes;
}

}  // namespace inferscale
