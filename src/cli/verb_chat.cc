// A conversation on the terminal: what was read once is never read again.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <unordered_set>

#include "cli/answer_view.h"
#include "cli/fact_view.h"
#include "cli/interrupt.h"
#include "cli/sampling_flags.h"
#include "cli/verbs.h"

namespace inferscale {
namespace {

struct Args {
  MemoryMode mode = MemoryMode::kAuto;
  bool remember = false;
  bool explain = false;
  bool heal = false;
  Sampling sampling;
};

int64_t NowMs() { return SystemClock().NowMs(); }

class Chat {
 public:
  Chat(const Args& args, const Options& options, App& app)
      : args_(args),
        options_(options),
        app_(app),
        conversation_(app.StartConversation()),
        terminal_(isatty(STDIN_FILENO) != 0) {
    if (options_.scope.run.empty()) run_ = fmt::format("chat-{}", FormatTime(NowMs()));
  }

  // What this conversation remembers is in its context already, so it is not retrieved.
  Status Start() {
    INFERSCALE_ASSIGN(filter_, Filter::Parse(fmt::format(R"({{"created_at":{{"lt":"{}"}}}})",
                                                         FormatTime(NowMs()))));
    return {};
  }

  Result<int> Loop() {
    if (terminal_) {
      Print(
          "Ask away. /facts shows what was used, /stats the last answer's numbers, /quit ends.\n");
    }
    while (std::optional<std::string> line = ReadLine()) {
      if (line->find_first_not_of(" \t") == std::string::npos) continue;
      if (*line == "/quit" || *line == "/exit") break;
      if (line->front() == '/') {
        RunCommand(*line);
      } else {
        INFERSCALE_TRY(Turn(*line));
      }
    }
    if (terminal_) Print("\n");
    return Interrupted() ? kExitInterrupted : kExitOk;
  }

 private:
  // nullopt at the end of the input or on Ctrl-C.
  std::optional<std::string> ReadLine() {
    if (terminal_) {
      Print("> ");
      FlushOutput();
    }
    // Not std::getline: that goes on reading after a signal.
    char* buffer = nullptr;
    size_t capacity = 0;
    const ssize_t length = ::getline(&buffer, &capacity, stdin);
    std::string line(buffer == nullptr || length < 0 ? "" : buffer,
                     length < 0 ? 0 : static_cast<size_t>(length));
    std::free(buffer);
    if (length < 0 || Interrupted()) return std::nullopt;
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
    return line;
  }

  void RunCommand(const std::string& command) {
    if (command == "/facts") {
      if (used_.empty()) {
        Print("No facts so far.\n");
      } else {
        PrintTable(ExplainFacts(used_));
      }
    } else if (command == "/stats") {
      Print(last_ ? ExplainNumbers(*last_) : "No answer so far.\n");
      Print(fmt::format("Context {} tokens held\n", FormatCount(conversation_->tokens())));
    } else {
      Say(fmt::format("{} is no command; there are /facts, /stats and /quit", command));
    }
  }

  Status Turn(const std::string& question) {
    if (Status valid = CheckText("the question", question); !valid) {
      Say(valid.error().message);
      return {};
    }
    AskRequest request = options_.Request();
    request.scope = options_.scope;
    request.question = question;
    request.mode = args_.mode;
    request.sampling = args_.sampling;
    request.filter = &filter_;
    auto answer = conversation_->Ask(request, [](const AnswerPiece& piece) {
      Print(SafeText(piece.text));
      FlushOutput();
      return !Interrupted();
    });
    Print("\n");
    if (!answer) {
      // One question that does not fit ends no conversation.
      if (answer.error().code != Code::kInvalid && answer.error().code != Code::kExhausted) {
        return tl::unexpected<Error>(std::move(answer).error());
      }
      Say(answer.error().message);
      return {};
    }
    if (answer->restarted) {
      Say("the conversation begins anew, with what memory holds: its context was full, or a fact "
          "that it had read was changed or deleted");
      used_.clear();
      INFERSCALE_TRY(Start());  // what it remembered so far is out of its context now
    }
    if (args_.explain) Print(ExplainNumbers(*answer));
    used_.insert(used_.end(), answer->facts.begin(), answer->facts.end());
    // Ctrl-C during an answer ends the answer, at the prompt it ends the chat.
    if (answer->finish == FinishReason::kCancelled && terminal_) CatchInterrupt();
    last_ = std::move(*answer);
    return args_.remember ? Remember(question) : Status{};
  }

  Status Remember(const std::string& question) {
    Scope scope = options_.scope;
    if (!run_.empty()) scope.run = run_;
    const auto turns = TurnFacts(scope, question, last_->text, NowMs());
    if (auto added = app_.Add(turns); !added) {
      Say(fmt::format("this turn was not remembered: {}", added.error().message));
    }
    return {};
  }

  const Args& args_;
  const Options& options_;
  App& app_;
  std::unique_ptr<Conversation> conversation_;
  bool terminal_;
  std::string run_;
  Filter filter_;
  std::vector<UsedFact> used_;
  std::optional<Answer> last_;
};

Result<int> Run(const Args& args, const Options& options) {
  if (options.json()) return Fail(Code::kInvalid, "chat has no JSON output; use ask -o json");
  if (options.scope.user == "*") return Fail(Code::kInvalid, "chat needs one --user, not '*'");
  AppOptions app_options = options.app;
  app_options.heal = args.heal;
  INFERSCALE_ASSIGN(const auto app, OpenApplication(app_options, Need::kAnswer));
  if (args.remember) app->StartBackgroundEncoding();
  Chat chat(args, options, *app);
  INFERSCALE_TRY(chat.Start());
  return chat.Loop();
}

}  // namespace

Verb ChatVerb(CLI::App& root) {
  auto args = std::make_shared<Args>();
  CLI::App* command =
      AddCommand(root, "chat", "Talk with the model; it reads nothing twice",
                 {"inferscale chat --user ana --remember", "inferscale chat --explain --facts 20",
                  "printf 'Where does Ana live?\\nSince when?\\n' | inferscale chat --user ana"});
  AddModeFlag(command, &args->mode);
  command->add_flag("--remember", args->remember, "Keep every question and answer as facts");
  command->add_flag("--explain", args->explain, "Tokens and milliseconds after every answer");
  AddHealFlag(command, &args->heal);
  AddSamplingFlags(command, &args->sampling);
  return {command, [args](const Options& options) { return Run(*args, options); }};
}

}  // namespace inferscale
