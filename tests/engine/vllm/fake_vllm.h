// A little server that speaks vLLM's routes and our connector's side of docs/vllm_protocol.md, and
// does as badly as it is told. A token is a byte; <|...|> markers are single tokens.
#ifndef INFERSCALE_TESTS_ENGINE_VLLM_FAKE_VLLM_H_
#define INFERSCALE_TESTS_ENGINE_VLLM_FAKE_VLLM_H_

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/json.hpp>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace inferscale {

class FakeVllm {
 public:
  using Object = boost::json::object;
  struct Behaviour {
    std::atomic<bool> connector{true};
    std::atomic<bool> tokenizer_info{false};  // the route that stands in for the connector's word
    std::atomic<bool> passes_self_test{true};
    std::atomic<bool> usage_details{true};
    std::atomic<bool> token_ids{true};
    std::atomic<int> fail_completions{0};   // so many answers of status 500 first
    std::atomic<int> break_completions{0};  // so many connections closed before an answer
    std::atomic<bool> refuse_plans{false};  // 400 for every request with one
    std::atomic<bool> break_after_first{false};
    std::atomic<size_t> cut{0};        // bytes of a piece of a stream's body; 0: an event at a time
    std::atomic<bool> endless{false};  // text until the client goes
    std::atomic<bool> waits{false};    // no event until the client goes
    std::string text = "Hello, \xc3\xa9t\xc3\xa9!";
    std::string fingerprint = "000102030405060708090a0b0c0d0e0f";
    std::function<void(const Object& op, const std::vector<int>& prompt)> on_op;
  };

  static constexpr int kStart = 300;  // <|im_start|>
  static constexpr int kEnd = 301;    // <|im_end|>

  FakeVllm() : acceptor_(context_, {boost::asio::ip::address_v4::loopback(), 0}) {
    port_ = acceptor_.local_endpoint().port();
    thread_ = std::thread([this] { Accept(); });
  }
  ~FakeVllm() {
    stopping_ = true;
    boost::asio::ip::tcp::socket knock(context_);
    boost::beast::error_code ignored;
    knock.connect({boost::asio::ip::address_v4::loopback(), port_}, ignored);
    thread_.join();
    {
      const std::lock_guard lock(mutex_);
      for (auto& one : open_) ::shutdown(one->native_handle(), SHUT_RDWR);
    }
    for (auto& one : serving_) one.join();
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  Behaviour& be() { return behaviour_; }  // set between requests

  int Count(const std::string& what) {
    const std::lock_guard lock(mutex_);
    return counts_[what];
  }
  std::vector<Object> Bodies(const std::string& path) {
    const std::lock_guard lock(mutex_);
    return bodies_[path];
  }
  std::string Trace() {  // of the last completion
    const std::lock_guard lock(mutex_);
    return trace_;
  }
  static std::vector<int> Tokenize(const std::string& text) {
    std::vector<int> ids;
    for (size_t i = 0; i < text.size();) {
      if (text.compare(i, 12, "<|im_start|>") == 0) {
        ids.push_back(kStart);
        i += 12;
      } else if (text.compare(i, 10, "<|im_end|>") == 0) {
        ids.push_back(kEnd);
        i += 10;
      } else {
        ids.push_back(static_cast<unsigned char>(text[i++]));
      }
    }
    return ids;
  }

 private:
  using Socket = boost::asio::ip::tcp::socket;
  using Request = boost::beast::http::request<boost::beast::http::string_body>;

  void Note(const std::string& what) {
    const std::lock_guard lock(mutex_);
    ++counts_[what];
  }

  void Accept() {
    while (true) {
      auto socket = std::make_shared<Socket>(context_);
      boost::beast::error_code error;
      acceptor_.accept(*socket, error);
      if (stopping_) return;
      if (error) continue;
      const std::lock_guard lock(mutex_);
      ++counts_["connections"];
      open_.push_back(socket);
      serving_.emplace_back([this, socket] {
        Serve(*socket);
        boost::beast::error_code ignored;
        socket->shutdown(Socket::shutdown_both, ignored);
      });
    }
  }

  void Serve(Socket& socket) {
    boost::beast::flat_buffer buffer;
    while (true) {
      Request request;
      boost::beast::error_code error;
      boost::beast::http::read(socket, buffer, request, error);
      if (error || !Answer(socket, request)) return;
    }
  }

  bool Answer(Socket& socket, const Request& request) {
    const std::string path(request.target());
    Object body;
    if (!request.body().empty()) body = boost::json::parse(request.body()).as_object();
    {
      const std::lock_guard lock(mutex_);
      ++counts_[path];
      bodies_[path].push_back(body);
      if (path == "/v1/completions") trace_ = std::string(request["traceparent"]);
    }
    if (path == "/v1/models") {
      return Json(socket, {{"data", {Object{{"id", "little"}, {"max_model_len", 4096}}}}});
    }
    if (path == "/tokenize") {
      std::vector<int> ids = Tokenize(std::string(body["prompt"].as_string()));
      if (body["add_special_tokens"].as_bool()) ids.insert(ids.begin(), 256);
      return Json(socket, {{"count", ids.size()}, {"tokens", boost::json::value_from(ids)}});
    }
    if (path == "/detokenize") {
      std::string text;
      for (const auto& id : body["tokens"].as_array()) text += static_cast<char>(id.as_int64());
      return Json(socket, {{"prompt", text}});
    }
    if (path == "/tokenizer_info" && behaviour_.tokenizer_info) {
      return Json(socket, {{"chat_template", "<|im_start|>"},
                           {"added_tokens_decoder",
                            Object{{std::to_string(kStart), Object{{"content", "<|im_start|>"}}},
                                   {std::to_string(kEnd), Object{{"content", "<|im_end|>"}}}}}});
    }
    if (path == "/v1/completions") return Complete(socket, body);
    return Json(socket, {{"error", Object{{"message", "no such route"}}}}, 404);
  }

  bool Complete(Socket& socket, Object& body) {
    if (behaviour_.break_completions > 0) {
      --behaviour_.break_completions;
      return false;
    }
    if (behaviour_.fail_completions > 0) {
      --behaviour_.fail_completions;
      return Json(socket, {{"error", Object{{"message", "secret"}}}}, 500);
    }
    Object op;
    if (const auto* params = body.if_contains("kv_transfer_params")) {
      op = params->at("inferscale").as_object();
    }
    const auto prompt = boost::json::value_to<std::vector<int>>(body["prompt"]);
    if (behaviour_.on_op && !op.empty()) behaviour_.on_op(op, prompt);
    if (body["stream"].as_bool()) {
      if (behaviour_.refuse_plans && !op.empty()) return Json(socket, {{"error", Object()}}, 400);
      return Stream(socket, op, prompt.size(), body.contains("logprobs"));
    }
    Object answer = {
        {"choices", {Object{{"index", 0}, {"text", "x"}, {"finish_reason", "length"}}}},
        {"usage", Usage(op, prompt.size(), 1)}};
    if (behaviour_.connector && !op.empty()) {
      answer["kv_transfer_params"] = Object{{"inferscale", Said(op)}};
    }
    return Json(socket, answer);
  }

  Object Said(const Object& op) {
    if (op.at("op") == "self_test" && op.at("step") == 1) tested_ = true;
    Note("op " + std::string(op.at("op").as_string()));
    const bool passed = tested_ && behaviour_.passes_self_test;
    return {{"v", 1},
            {"version", "0.1.0"},
            {"vllm", "0.26.0"},
            {"fingerprint", behaviour_.fingerprint},
            {"shape", {{"layers", 2}, {"kv_heads", 1}, {"dim", 8}, {"dtype", "f16"}}},
            {"ranks", 1},
            {"context_tokens", 4096},
            {"dir", "/somewhere/kv"},
            {"injection", passed},
            {"reason", passed ? "" : "the self-test has not passed"},
            {"self_test",
             {{"state", !tested_ ? "none"
                        : passed ? "passed"
                                 : "failed"},
              {"worst", 0.004},
              {"layers", {0.001, 0.004}}}},
            {"tokenizer",
             {{"bos", 256},
              {"special", {{"<|im_start|>", kStart}, {"<|im_end|>", kEnd}}},
              {"chat_template", "<|im_start|>"}}}};
  }

  Object Usage(const Object& op, size_t prompt, size_t completion) const {
    Object usage = {{"prompt_tokens", prompt}, {"completion_tokens", completion}};
    if (!behaviour_.usage_details) return usage;
    int64_t cached = 0;
    if (!op.empty() && op.at("op") == "inject") {
      const std::string_view packed = op.at("spans").as_string();
      for (size_t at = 8; at < packed.size(); at += 56) {  // `tokens` below 256, little-endian
        cached += std::stoi(std::string(packed.substr(at, 2)), nullptr, 16);
      }
    }
    usage["prompt_tokens_details"] = Object{{"cached_tokens", cached}};
    return usage;
  }

  // Of one token, with one more than was asked for if that was one.
  static Object Logprobs(int id) {
    const std::string name = id < 128 ? std::string(1, static_cast<char>(id)) : std::to_string(id);
    return {{"tokens", {name}},
            {"token_logprobs", {-1.5}},
            {"top_logprobs", {Object{{name, -1.5}, {"best", -0.5}}}},
            {"text_offset", {0}}};
  }

  bool Stream(Socket& socket, const Object& op, size_t prompt, bool logprobs) {
    namespace http = boost::beast::http;
    http::response<http::empty_body> response(http::status::ok, 11);
    response.set(http::field::content_type, "text/event-stream");
    response.chunked(true);
    http::response_serializer<http::empty_body> serializer(response);
    boost::beast::error_code error;
    http::write_header(socket, serializer, error);
    if (behaviour_.waits) {
      while (Send(socket, ": \n")) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      Note("gone");
      return false;
    }
    std::string events;
    std::string pending;  // of a character
    for (const int id : Tokenize(behaviour_.text)) {
      Object choice = {{"index", 0}, {"text", ""}};
      pending += static_cast<char>(id);
      const bool whole = (id & 0xC0) != 0xC0;  // of the two-byte characters used here
      if (whole) choice["text"] = std::exchange(pending, "");
      if (behaviour_.token_ids) choice["token_ids"] = boost::json::array{id};
      if (logprobs) choice["logprobs"] = Logprobs(id);
      events += "data: " + boost::json::serialize(Object{{"choices", {choice}}}) + "\n\n";
      if (behaviour_.break_after_first) break;
    }
    if (behaviour_.break_after_first) {
      Send(socket, events);
      return false;
    }
    while (behaviour_.endless && Send(socket, events)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    if (behaviour_.endless) {
      Note("gone");
      return false;
    }
    Object last = {{"index", 0}, {"text", ""}, {"finish_reason", "stop"}};
    if (behaviour_.token_ids) last["token_ids"] = boost::json::array{kEnd};
    if (logprobs) last["logprobs"] = Logprobs(kEnd);
    events += "data: " + boost::json::serialize(Object{{"choices", {last}}}) + "\n\n";
    const size_t count = Tokenize(behaviour_.text).size() + 1;
    events += "data: " +
              boost::json::serialize(
                  Object{{"choices", boost::json::array()}, {"usage", Usage(op, prompt, count)}}) +
              "\n\ndata: [DONE]\n\n";
    Send(socket, events);
    boost::asio::write(socket, http::make_chunk_last(), error);
    return !error;
  }

  bool Send(Socket& socket, std::string_view bytes) {
    boost::beast::error_code error;
    const size_t cut = behaviour_.cut;
    const size_t step = cut == 0 ? bytes.size() : cut;
    for (size_t at = 0; at < bytes.size() && !error; at += step) {
      const auto piece = bytes.substr(at, step);
      boost::asio::write(
          socket, boost::beast::http::make_chunk(boost::asio::buffer(piece.data(), piece.size())),
          error);
    }
    return !error;
  }

  static bool Json(Socket& socket, const Object& body, unsigned status = 200) {
    namespace http = boost::beast::http;
    http::response<http::string_body> response(static_cast<http::status>(status), 11);
    response.body() = boost::json::serialize(body);
    response.prepare_payload();
    boost::beast::error_code error;
    http::write(socket, response, error);
    return !error;
  }

  boost::asio::io_context context_;
  boost::asio::ip::tcp::acceptor acceptor_;
  uint16_t port_ = 0;
  std::atomic<bool> stopping_{false};
  Behaviour behaviour_;
  std::atomic<bool> tested_{false};
  std::mutex mutex_;
  std::map<std::string, int> counts_;
  std::map<std::string, std::vector<Object>> bodies_;
  std::string trace_;
  std::list<std::shared_ptr<Socket>> open_;
  std::list<std::thread> serving_;
  std::thread thread_;
};

}  // namespace inferscale

#endif  // INFERSCALE_TESTS_ENGINE_VLLM_FAKE_VLLM_H_
