// One model instance: its worker, and the workers that replace it.
#pragma once

#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "abi/journal.h"
#include "channel/heartbeat.h"
#include "channel/report.h"
#include "front/front.h"
#include "front/recovery/death.h"
#include "front/recovery/deputy.h"
#include "front/recovery/restarts.h"
#include "front/recovery/take_over.h"
#include "front/settings.h"
#include "front/starter.h"
#include "front/worker.h"

namespace envpack::front {

// Why a worker has not come to serve requests: what it has reported, or else that it ended, which `end` says.
abi::Failure FailureOf(const channel::Report& report, const std::string& end);

// How a process ended, and the line that crashed, if any. `status` is the one of waitpid().
std::string DescribeEnd(int status, CrashOutput& crash, const std::string& model_file);

class Instance {
 public:
  // All must outlive the instance. `command` is the server's to initialize.
  Instance(const abi::Launch& launch, Deputy& deputy, channel::Heartbeat& heartbeat,
           const abi::Command& command, const Work& work)
      : launch_(launch), deputy_(deputy), heartbeat_(heartbeat), command_(command), work_(work) {}

  // Returns the exit status, or ends the process as the last worker ended.
  int Run();

 private:
  void Start();
  std::optional<int> AwaitStart();
  bool IsFinalized();
  int AwaitEnd();
  void Tick();
  bool IsOutOfTime() const;
  int EndHanging();
  int RefuseFirst(int status);
  void TakeOverFrom(int status, const std::string& error);
  void Replace(int status);
  [[noreturn]] void End(int status);
  [[noreturn]] void GiveUp(int status);
  std::string DescribeEndOf(int status);
  std::string DescribeDeath(int status, bool has_served);

  const abi::Launch& launch_;
  Deputy& deputy_;
  channel::Heartbeat& heartbeat_;
  const abi::Command& command_;
  const Work& work_;
  Settings settings_;
  std::optional<Restarts> restarts_;
  std::optional<Starter> starter_;
  const abi::JournalFile journal_file_;
  const std::shared_ptr<abi::Journal> journal_ = journal_file_.journal();
  CrashOutput crash_;
  std::unique_ptr<channel::Report> report_;
  std::unique_ptr<Worker> worker_;
  std::list<TakeOver> take_overs_;  // of dead workers whose requests to other models have not ended
  std::string last_death_;
  std::string ended_since_;  // why this process has ended the worker
};

}  // namespace envpack::front
