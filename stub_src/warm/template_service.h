// The template's side: forks a worker for each front that asks for one.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <list>
#include <optional>

#include "base/descriptor.h"
#include "warm/order.h"

namespace envpack::warm {

// Single-threaded. Ends the process when no front needs it any more, or when the server ends.
class TemplateService {
 public:
  struct Actions {
    // Forks as Python does. Returns 0 in the child.
    std::function<pid_t()> fork;
    // Called with the first order for an initialized template. False: no worker can be forked any more.
    std::function<bool(const Assignment&)> initialize;
  };

  // `listener`: the socket at which fronts ask. `front`: the process that made the template, its parent.
  // Throws std::system_error if the server's process cannot be watched.
  TemplateService(Descriptor listener, pid_t server, pid_t front);

  // Returns in each worker, with the order that it is to run.
  Assignment Serve(const Actions& actions);

  // For a process that must not fork: becomes the worker of the front that has made it, and returns that
  // front's order. The other fronts find that there is no template.
  Assignment BecomeWorker();

 private:
  using Clock = std::chrono::steady_clock;

  struct Front {
    Descriptor socket;
    Descriptor worker;  // pidfd
    pid_t pid = 0;      // of the worker
    bool completes = false;
  };

  void StopListening();
  void CollectChildren();
  void Accept();
  Descriptor AcceptOne();
  void AwaitEvents();
  void ReportEnds();
  bool IsNeeded() const;
  std::optional<Assignment> TakeOrders(const Actions& actions);
  std::optional<Assignment> Fork(Front& front, Assignment order, const Actions& actions);
  void Watch(Front& front, pid_t pid);
  void Leave(Front& front);

  Descriptor listener_;
  Descriptor server_;
  const pid_t front_;
  std::list<Front> fronts_;
  Clock::time_point open_until_;  // for further fronts
  bool awaits_instances_ = true;  // none has asked yet
  bool is_initialized_ = false;
  struct sigaction for_children_{};  // as the model has set it
};

}  // namespace envpack::warm
