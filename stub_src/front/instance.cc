#include "front/instance.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <variant>

#include "channel/refusal.h"

namespace envpack::front {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kStartTick(20), kPendingTick(5), kLimitTick(50);
constexpr milliseconds kForTraceback(500);
constexpr milliseconds kForFinalize(2000);

std::int64_t NanosecondsNow() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

std::string InSeconds(milliseconds duration) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", std::chrono::duration<double>(duration).count());
  return text;
}

}  // namespace

abi::Failure FailureOf(const channel::Report& report, const std::string& end) {
  auto answer = report.Answer();
  if (auto* failure = answer ? std::get_if<abi::Failure>(&*answer) : nullptr) return std::move(*failure);
  const channel::Step step = report.Reached();
  const std::string reason =
      "The model's process " + end + " while " + Describe(step) + ". See its output in the server's log.";
  return {step == channel::Step::kStart ? channel::StartFailure(reason) : reason};
}

std::string DescribeEnd(int status, CrashOutput& crash, const std::string& model_file) {
  const std::string place = crash.Pass(model_file);
  return DescribeEnd(status) + (place.empty() ? "" : " at " + place);
}

int Instance::Run() {
  try {
    settings_ = Settings::Of(command_);
  } catch (const std::invalid_argument& error) {
    channel::Refuse(deputy_, command_, error.what());
    return 1;
  }
  deputy_.region().Watch(journal_->ledger.undo_log());
  restarts_.emplace(settings_.most_deaths);
  starter_.emplace(heartbeat_, work_, deputy_.UsesEnvironment(), settings_);
  std::optional<int> ended;
  try {
    Start();
    ended = AwaitStart();
  } catch (const std::system_error& error) {
    channel::Refuse(deputy_, command_, error.what());
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

void Instance::Start() {
  report_ = std::make_unique<channel::Report>();
  const Assignment assignment{launch_,
                              deputy_.release(),
                              command_,
                              *report_,
                              journal_,
                              journal_file_.descriptor(),
                              crash_.descriptor(),
                              settings_.execute_limit.has_value(),
                              restarts_->count(),
                              last_death_};
  worker_ = starter_->Start(assignment);
  worker_->PassSignals();
}

// Nothing if the worker serves requests; otherwise the status with which it ended.
std::optional<int> Instance::AwaitStart() {
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
bool Instance::IsFinalized() {
  return journal_->stage == abi::Journal::kEnding && journal_->command == deputy_.commands().LastTaken() &&
         !deputy_.HasOpenBatch();
}

int Instance::AwaitEnd() {
  for (;;) {
    if (take_overs_.empty() && !settings_.execute_limit) return worker_->Wait();
    if (const auto status = worker_->WaitFor(take_overs_.empty() ? kLimitTick : kPendingTick)) return *status;
    Tick();
    if (IsOutOfTime()) return EndHanging();
  }
}

void Instance::Tick() {
  take_overs_.remove_if([](TakeOver& each) {
    try {
      if (!each.Advance()) return false;
      each.GiveBack();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "envpack stub: a request of a dead process to another model is lost: %s\n",
                   error.what());
    }
    return true;
  });
}

bool Instance::IsOutOfTime() const {
  const std::int64_t since = journal_->executing_since;
  const std::int64_t now = NanosecondsNow();
  if (!settings_.execute_limit || since <= 0 || since > now) return false;
  return now - since > std::chrono::nanoseconds(*settings_.execute_limit).count();
}

int Instance::EndHanging() {
  ended_since_ = "execute() did not return within the " + InSeconds(*settings_.execute_limit) +
                 " seconds of ENVPACK_EXECUTE_TIMEOUT";
  worker_->Signal(TracebackSignal());
  const auto status = worker_->WaitFor(kForTraceback);
  if (status) return *status;
  worker_->Signal(SIGKILL);
  return worker_->Wait();
}

std::string Instance::DescribeEndOf(int status) {
  const std::string end = DescribeEnd(status, crash_, launch_.model_file);
  const std::string since = std::exchange(ended_since_, "");
  return since.empty() ? end : "was ended, since " + since;
}

std::string Instance::DescribeDeath(int status, bool has_served) {
  if (!has_served) return FailureOf(*report_, DescribeEndOf(status)).text;
  return "the model's process " + std::to_string(worker_->pid()) + " " + DescribeEndOf(status);
}

// What cannot be put right remains as it is: the server finds a dead stub, as it would without a front.
void Instance::TakeOverFrom(int status, const std::string& error) {
  try {
    TakeOver& one = take_overs_.emplace_back(deputy_, *journal_, error);
    if (!one.Advance()) return;
    one.GiveBack();
    take_overs_.pop_back();
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "envpack stub: '%s' is not restarted, since %s: %s\n", launch_.name.c_str(),
                 last_death_.c_str(), failure.what());
    EndAs(status);
  }
}

int Instance::RefuseFirst(int status) {
  last_death_ = DescribeDeath(status, false);
  TakeOverFrom(status, last_death_);
  deputy_.AnswerInitialize(abi::Failure{last_death_});
  EndAs(status);
}

// The server waits for the answer to finalize without a limit.
void Instance::End(int status) {
  if (journal_->answer_pushed == 0) {
    last_death_ = DescribeDeath(status, true);
    TakeOverFrom(status, last_death_);
  }
  EndAs(status);
}

// The server may just have found this process alive, and finalizes it then: it waits for that answer without
// a limit, but not for a process that it finds dead.
void Instance::GiveUp(int status) {
  using Clock = std::chrono::steady_clock;
  heartbeat_.Stop();
  deputy_.Beat(false);
  const auto end = Clock::now() + kForFinalize;
  const auto left = [&] { return std::chrono::duration_cast<milliseconds>(end - Clock::now()); };
  abi::Attempt([&] {
    while (left() > milliseconds(0) && deputy_.commands().HasValueWithin(left())) {
      if (!channel::Refuse(deputy_, deputy_.Receive(), last_death_)) break;
    }
  });
  EndAs(status);
}

// Answers for the worker that has died, and starts another one.
void Instance::Replace(int status) {
  std::optional<int> ended = status;
  for (bool has_served = true; ended; has_served = false) {
    last_death_ = DescribeDeath(*ended, has_served);
    const bool may_restart = restarts_->Allow();
    TakeOverFrom(
        *ended, "Failed to process the request(s) for model '" + launch_.name + "', message: " + last_death_);
    if (!may_restart) {
      std::fprintf(stderr, "envpack stub: '%s' is not restarted any more: %s\n", launch_.name.c_str(),
                   last_death_.c_str());
      GiveUp(*ended);
    }
    try {
      Start();
      ended = AwaitStart();
    } catch (const std::system_error& error) {
      std::fprintf(stderr, "envpack stub: '%s' is not restarted, since %s: %s\n", launch_.name.c_str(),
                   last_death_.c_str(), error.what());
      GiveUp(*ended);
    }
  }
  journal_->Reach(abi::Journal::kServing);
}

}  // namespace envpack::front
