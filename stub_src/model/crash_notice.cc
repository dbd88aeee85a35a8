#include "model/crash_notice.h"

#include <signal.h>
#include <unistd.h>

#include <array>

namespace envpack::model {

namespace {

struct Handler {
  int signal;
  struct sigaction before;
};

std::string notice;
// Those that faulthandler handles.
std::array<Handler, 5> handlers{{{SIGSEGV, {}}, {SIGBUS, {}}, {SIGFPE, {}}, {SIGILL, {}}, {SIGABRT, {}}}};

// Once for each signal: writes the notice and leaves the signal to faulthandler. It is blocked until we
// return.
void Notice(int signal) {
  const ssize_t written = write(STDERR_FILENO, notice.data(), notice.size());
  static_cast<void>(written);  // nothing can be done about a standard error that is not there
  for (const Handler& handler : handlers) {
    if (handler.signal == signal) sigaction(signal, &handler.before, nullptr);
  }
  raise(signal);
}

}  // namespace

void NameInCrashes(const std::string& instance) {
  notice = "\nenvpack stub: a crash in '" + instance + "'. Where Python was:\n";
  for (Handler& handler : handlers) {
    sigaction(handler.signal, nullptr, &handler.before);
    if (handler.before.sa_handler == SIG_DFL || handler.before.sa_handler == SIG_IGN) continue;
    struct sigaction action = handler.before;  // on faulthandler's own stack, for the case that ours is full
    action.sa_handler = Notice;
    action.sa_flags &= ~(SA_SIGINFO | SA_NODEFER);
    sigaction(handler.signal, &action, nullptr);
  }
}

}  // namespace envpack::model
