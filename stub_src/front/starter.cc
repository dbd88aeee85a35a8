#include "front/starter.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>
#include <variant>

#include "front/warm_worker.h"
#include "warm/order.h"

namespace envpack::front {

namespace {

// The order owns its descriptors until it is sent.
Descriptor Duplicate(int descriptor) {
  Descriptor copy(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!copy) FailBySystem("cannot copy a descriptor");
  return copy;
}

}  // namespace

std::unique_ptr<Worker> Starter::Start(const Assignment& assignment) {
  if (settings_.is_warm && !std::exchange(has_searched_, true)) FindTemplateFor(assignment);
  if (!template_ || !Order(assignment)) return StartCold(assignment);
  return std::make_unique<WarmWorker>(template_->socket.number(), template_->child, [this, assignment] {
    template_.reset();
    return StartCold(assignment);
  });
}

std::unique_ptr<Worker> Starter::StartCold(const Assignment& assignment) {
  std::unique_ptr<Worker> worker;
  heartbeat_.StopWhile([&] { worker = std::make_unique<ForkedWorker>([&] { return work_(assignment); }); });
  return worker;
}

void Starter::FindTemplateFor(const Assignment& assignment) {
  std::string reason;
  const bool is_new_load = std::holds_alternative<abi::AutoCompleteCommand>(assignment.command);
  template_ = FindTemplate(assignment.launch, assignment.release, uses_environment_, is_new_load, &reason);
  if (template_) return;
  std::fprintf(stderr, "envpack stub: '%s' starts cold: %s\n", assignment.launch.name.c_str(),
               reason.c_str());
}

bool Starter::Order(const Assignment& assignment) {
  const warm::Order order{assignment.launch,
                          assignment.release,
                          assignment.command,
                          assignment.may_run_out_of_time,
                          settings_.initialize_in_template,
                          assignment.restarts,
                          assignment.last_death,
                          Duplicate(assignment.journal_file),
                          Duplicate(assignment.report.descriptor()),
                          Duplicate(assignment.crash_output)};
  return warm::Send(template_->socket.number(), order);
}

}  // namespace envpack::front
