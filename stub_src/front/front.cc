#include "front/front.h"

#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <deque>
#include <exception>
#include <list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>

#include "abi/journal.h"
#include "base/output.h"
#include "channel/heartbeat.h"
#include "channel/refusal.h"
#include "channel/report.h"
#include "front/recovery/death.h"
#include "front/recovery/deputy.h"
#include "front/recovery/take_over.h"
#include "front/settings.h"
#include "front/worker.h"
#include "two_halves/body.h"

namespace envpack::front {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kStartTick(20), kPendingTick(5), kLimitTick(50), kIdleTick(200);
constexpr milliseconds kForTraceback(500);
// An instance that refused at once would take the requests from the model's other instances.
constexpr milliseconds kRefusing(500);

std::string InSeconds(milliseconds duration) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", std::chrono::duration<double>(duration).count());
  return text;
}

// Why a worker has not come to serve requests: what it has reported, or else that it ended, which `end` says.
abi::Failure FailureOf(const channel::Report& report, const std::string& end) {
  auto answer = report.Answer();
  if (auto* failure = answer ? std::get_if<abi::Failure>(&*answer) : nullptr) return std::move(*failure);
  const channel::Step step = report.Reached();
  const std::string reason =
      "The model's process " + end + " while " + Describe(step) + ". See its output in the server's log.";
  return {step == channel::Step::kStart ? channel::StartFailure(reason) : reason};
}

// One model instance: its worker, and the workers that replace it.
class Instance {
 public:
  Instance(Deputy& deputy, channel::Heartbeat& heartbeat, Assignment assignment, const Settings& settings)
      : deputy_(deputy),
        assignment_(std::move(assignment)),
        settings_(settings),
        starter_(heartbeat, deputy.UsesEnvironment(), settings.is_warm) {
    assignment_.may_run_out_of_time = settings.execute_limit.has_value();
    assignment_.initialize_in_template = settings.initialize_in_template;
    assignment_.journal = std::make_shared<abi::JournalFile>();
    assignment_.crash_output = crash_.file();
    journal_ = assignment_.journal->journal();
    deputy.region().Watch(journal_->ledger.undo_log());
  }

  int Run() {
    std::optional<int> ended;
    try {
      Start();
      ended = AwaitStart();
    } catch (const std::system_error& error) {
      channel::Refuse(deputy_, assignment_.command, error.what());
      return 1;
    }
    if (ended) return RefuseFirst(*ended);
    deputy_.AnswerInitialize({});
    journal_->Reach(abi::Journal::kServing);
    for (;;) {
      const int status = AwaitEnd();
      if (IsFinalized()) End(status);
      Replace(status);
    }
  }

 private:
  void Start() {
    assignment_.report = std::make_shared<channel::Report>();
    worker_ = starter_.Start(assignment_);
    worker_->PassSignals();
  }

  // Nothing if the worker serves requests; otherwise the status with which it ended.
  std::optional<int> AwaitStart() {
    while (journal_->stage == abi::Journal::kStarting) {
      if (const auto status = worker_->WaitFor(milliseconds(0))) return status;
      Tick();
      journal_->AwaitEndOf(abi::Journal::kStarting, take_overs_.empty() ? kStartTick : kPendingTick);
    }
    if (journal_->stage == abi::Journal::kReady) {
      worker_->AwaitPid();  // who looks for the process of a loaded model finds it
      return std::nullopt;
    }
    ended_since_ = "it has damaged the memory that it shares with the stub";
    worker_->Signal(SIGKILL);
    return worker_->Wait();
  }

  // The model may have overwritten the stage.
  bool IsFinalized() {
    return journal_->stage == abi::Journal::kEnding && journal_->command == deputy_.commands().LastTaken() &&
           !deputy_.HasOpenBatch();
  }

  int AwaitEnd() {
    for (;;) {
      if (take_overs_.empty() && !settings_.execute_limit) return worker_->Wait();
      if (const auto status = worker_->WaitFor(take_overs_.empty() ? kLimitTick : kPendingTick))
        return *status;
      Tick();
      if (IsOutOfTime()) return EndHanging();
    }
  }

  void Tick() {
    take_overs_.remove_if([](TakeOver& each) {
      try {
        if (!each.Advance()) return false;
        each.GiveBack();
      } catch (const std::exception& error) {
        Print("a request of a dead process to another model is lost", error.what());
      }
      return true;
    });
  }

  bool IsOutOfTime() const {
    const std::chrono::nanoseconds since(journal_->executing_since), now = Clock::now().time_since_epoch();
    if (!settings_.execute_limit || since.count() <= 0 || since > now) return false;
    return now - since > *settings_.execute_limit;
  }

  int EndHanging() {
    ended_since_ = "execute() did not return within the " + InSeconds(*settings_.execute_limit) +
                   " seconds of ENVPACK_EXECUTE_TIMEOUT";
    worker_->Signal(TracebackSignal());
    const auto status = worker_->WaitFor(kForTraceback);
    if (status) return *status;
    worker_->Signal(SIGKILL);
    return worker_->Wait();
  }

  std::string DescribeEndOf(int status) {
    const std::string end = crash_.DescribeEnd(status, assignment_.launch.model_file);
    const std::string since = std::exchange(ended_since_, "");
    return since.empty() ? end : "was ended, since " + since;
  }

  std::string DescribeDeath(int status, bool has_served) {
    if (!has_served) return FailureOf(*assignment_.report, DescribeEndOf(status)).text;
    return "the model's process " + std::to_string(worker_->pid()) + " " + DescribeEndOf(status);
  }

  void PrintNotRestarted(const std::exception& reason) const {
    Print("'" + assignment_.launch.name + "' is not restarted, since " + assignment_.last_death,
          reason.what());
  }

  // What cannot be put right remains as it is: the server finds a dead stub, as it would without a front.
  void TakeOverFrom(int status, const std::string& error) {
    try {
      TakeOver& one = take_overs_.emplace_back(deputy_, *journal_, error);
      if (!one.Advance()) return;
      one.GiveBack();
      take_overs_.pop_back();
    } catch (const std::exception& failure) {
      PrintNotRestarted(failure);
      EndAs(status);
    }
  }

  // Returns whether the worker is to be replaced.
  bool CountDeath() {
    const auto now = Clock::now();
    deaths_.push_back(now);
    while (deaths_.front() < now - std::chrono::minutes(1)) deaths_.pop_front();
    if (deaths_.size() >= settings_.most_deaths) return false;
    ++assignment_.restarts;
    return true;
  }

  int RefuseFirst(int status) {
    assignment_.last_death = DescribeDeath(status, false);
    TakeOverFrom(status, assignment_.last_death);
    deputy_.AnswerInitialize(abi::Failure{assignment_.last_death});
    EndAs(status);
  }

  // Signals that ask a process to end may come while it does.
  static bool IsCrash(int status) {
    if (!WIFSIGNALED(status)) return WEXITSTATUS(status) != 0;
    return WTERMSIG(status) != SIGTERM && WTERMSIG(status) != SIGINT;
  }

  // The server waits for the answer to finalize without a limit.
  [[noreturn]] void End(int status) {
    if (journal_->answer_pushed == 0) {
      assignment_.last_death = DescribeDeath(status, true);
      TakeOverFrom(status, assignment_.last_death);
    } else if (IsCrash(status)) {
      Print("'" + assignment_.launch.name + "' crashed when it was unloaded", DescribeDeath(status, true));
    }
    EndAs(status);
  }

  // The instance stays until it is unloaded. A request that reaches a dead stub keeps its model from being
  // unloaded (Triton 24.10), and a reload is what brings the model back.
  [[noreturn]] void RefuseRequests(int status) {
    const std::string error = channel::RequestFailure(
        assignment_.launch.name, "it is not restarted any more: " + assignment_.last_death);
    const auto tick = [this] {
      Tick();
      deputy_.DismissServerMessages();
    };
    abi::Attempt([&] {
      for (;;) {
        while (!deputy_.commands().HasValueWithin(take_overs_.empty() ? kIdleTick : kPendingTick)) tick();
        const abi::Command command = deputy_.Receive();
        if (deputy_.HasOpenBatch()) {
          for (const auto end = Clock::now() + kRefusing; Clock::now() < end;) {
            std::this_thread::sleep_for(kStartTick);
            tick();
          }
          deputy_.RefuseBatch(error, tick);
        } else if (!channel::Refuse(deputy_, command, error)) {
          break;
        }
      }
    });
    EndAs(status);
  }

  // Answers for the worker that has died, and starts another one.
  void Replace(int status) {
    std::optional<int> ended = status;
    for (bool has_served = true; ended; has_served = false) {
      assignment_.last_death = DescribeDeath(*ended, has_served);
      const bool may_restart = CountDeath();
      TakeOverFrom(*ended, channel::RequestFailure(assignment_.launch.name, assignment_.last_death));
      if (!may_restart) {
        Print("'" + assignment_.launch.name + "' is not restarted any more", assignment_.last_death);
        RefuseRequests(*ended);
      }
      try {
        Start();
        ended = AwaitStart();
      } catch (const std::system_error& error) {
        PrintNotRestarted(error);
        RefuseRequests(*ended);
      }
    }
    journal_->Reach(abi::Journal::kServing);
  }

  Deputy& deputy_;
  Assignment assignment_;
  const Settings settings_;
  Starter starter_;
  std::shared_ptr<abi::Journal> journal_;
  CrashOutput crash_;
  std::unique_ptr<Worker> worker_;
  std::list<TakeOver> take_overs_;        // of dead workers whose requests to other models have not ended
  std::deque<Clock::time_point> deaths_;  // of the last minute
  std::string ended_since_;               // why this process has ended the worker
};

// `assignment` has the server's command to initialize.
int RunInstance(Deputy& deputy, channel::Heartbeat& heartbeat, Assignment assignment) {
  Settings settings;
  try {
    settings = Settings::Of(assignment.command);
  } catch (const std::invalid_argument& error) {
    channel::Refuse(deputy, assignment.command, error.what());
    return 1;
  }
  return Instance(deputy, heartbeat, std::move(assignment), settings).Run();
}

// The server waits for the completed configuration without a timeout and without checking the heartbeat, so
// the front answers in any case.
int Complete(Deputy& deputy, channel::Heartbeat& heartbeat, Assignment assignment) {
  abi::AutoCompleteAnswer answer;
  try {
    const Settings settings = Settings::Of(assignment.command);
    Starter starter(heartbeat, deputy.UsesEnvironment(), settings.is_warm);
    CrashOutput crash;
    assignment.report = std::make_shared<channel::Report>();
    assignment.crash_output = crash.file();
    assignment.journal = std::make_shared<abi::JournalFile>();
    deputy.region().Watch(assignment.journal->journal()->ledger.undo_log());
    const auto worker = starter.Start(assignment);
    const std::string end = crash.DescribeEnd(worker->Wait(), assignment.launch.model_file);
    answer = assignment.report->Answer().value_or(FailureOf(*assignment.report, end));
  } catch (const std::exception& error) {  // a setting, or no process can be created
    answer = abi::Failure{error.what()};
  }
  deputy.region().CheckAll();
  const auto& journal = assignment.journal;
  if (const auto held = journal ? journal->journal()->ledger.Held() : std::nullopt) {
    deputy.region().ReleaseFor(*held);  // so that there is room for the answer
  }
  deputy.AnswerAutoComplete(answer);
  if (std::holds_alternative<abi::Failure>(answer)) return 0;
  channel::RefuseEverything(deputy, "this process only completes a configuration");
  return 0;
}

int Serve(const abi::Launch& launch, Deputy& deputy, channel::Heartbeat& heartbeat) {
  // The first command determines what the worker does.
  abi::Command first = deputy.Receive();
  while (std::holds_alternative<abi::UnknownCommand>(first)) first = deputy.Receive();
  if (std::holds_alternative<abi::AutoCompleteCommand>(first)) {
    return Complete(deputy, heartbeat, {launch, deputy.release(), std::move(first)});
  }
  if (!std::holds_alternative<abi::InitializeCommand>(first)) {
    channel::Refuse(deputy, first, "the model has not been initialized");
    return 0;
  }
  return RunInstance(deputy, heartbeat, {launch, deputy.release(), std::move(first)});
}

}  // namespace

int Run(const abi::Launch& launch, abi::Release release) {
  std::unique_ptr<Deputy> deputy;
  try {
    deputy = std::make_unique<Deputy>(launch, release);
  } catch (const std::invalid_argument& error) {  // this stub was built for other releases
    return channel::RefuseLaunch(launch, release, error.what());
  }
  // First, so that no later error leaves the server waiting for the startup message.
  deputy->Announce();
  std::optional<channel::Heartbeat> heartbeat;
  try {
    heartbeat.emplace(*deputy, launch.server_pid);
  } catch (const std::system_error& error) {
    return channel::RefuseStart(*deputy, error.what());
  }
  return Serve(launch, *deputy, *heartbeat);
}

}  // namespace envpack::front
