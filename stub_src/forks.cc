#include "forks.h"

#include <pthread.h>
#include <signal.h>

#include <array>

namespace envpack::forks {

namespace {

struct Disposition {
  int signal;
  struct sigaction action;
};

int depth = 0;
std::array<Disposition, 2> ours{{{SIGINT, {}}, {SIGTERM, {}}}};

thread_local sigset_t mask_before;

// Blocks the signals until the child has restored its dispositions.
void BeforeFork() {
  sigset_t set;
  sigemptyset(&set);
  for (const Disposition& disposition : ours) sigaddset(&set, disposition.signal);
  pthread_sigmask(SIG_BLOCK, &set, &mask_before);
}

void InParent() { pthread_sigmask(SIG_SETMASK, &mask_before, nullptr); }

// A model that forks workers expects terminate() to end them.
void InChild() {
  ++depth;
  for (const Disposition& disposition : ours) {
    struct sigaction now{};
    sigaction(disposition.signal, nullptr, &now);
    if (now.sa_handler != disposition.action.sa_handler) continue;
    now = {};
    now.sa_handler = SIG_DFL;
    sigaction(disposition.signal, &now, nullptr);
  }
  pthread_sigmask(SIG_SETMASK, &mask_before, nullptr);
}

}  // namespace

void Watch() {
  for (Disposition& disposition : ours) sigaction(disposition.signal, nullptr, &disposition.action);
  pthread_atfork(BeforeFork, InParent, InChild);
}

int Depth() { return depth; }

}  // namespace envpack::forks
