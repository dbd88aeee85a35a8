#include "base/forks.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "base/signals.h"

namespace envpack::forks {

namespace {

int depth = 0;
bool is_successor = false;  // the process that is being forked
std::array<Disposition, 2> ours{{{SIGINT, {}}, {SIGTERM, {}}}};

thread_local sigset_t mask_before;

// Of a forked process: how many threads must not be disturbed, and the signal that then ends the process.
std::atomic<int> undisturbed{0};
std::atomic<int> delayed{0};

// Blocks the signals until the child has restored its dispositions.
void BeforeFork() {
  sigset_t set;
  sigemptyset(&set);
  for (const Disposition& disposition : ours) sigaddset(&set, disposition.signal);
  pthread_sigmask(SIG_BLOCK, &set, &mask_before);
}

void InParent() { pthread_sigmask(SIG_SETMASK, &mask_before, nullptr); }

// What the default action does, as soon as no thread is in the middle of an exchange.
void EndUndisturbed(int signal) {
  delayed = signal;
  if (undisturbed != 0) return;
  SetHandler(signal, SIG_DFL);
  raise(signal);
}

// A model that forks workers expects terminate() to end them.
void InChild() {
  if (is_successor) {
    pthread_sigmask(SIG_SETMASK, &mask_before, nullptr);
    return;
  }
  ++depth;
  undisturbed = 0;
  delayed = 0;
  for (Disposition& disposition : ours) {
    struct sigaction now{};
    sigaction(disposition.signal, nullptr, &now);
    if (now.sa_handler != disposition.action.sa_handler) continue;
    SetHandler(disposition.signal, EndUndisturbed);
    // For the processes that this one forks.
    sigaction(disposition.signal, nullptr, &disposition.action);
  }
  pthread_sigmask(SIG_SETMASK, &mask_before, nullptr);
}

}  // namespace

void Watch() {
  for (Disposition& disposition : ours) sigaction(disposition.signal, nullptr, &disposition.action);
  pthread_atfork(BeforeFork, InParent, InChild);
}

pid_t ForkSuccessor() {
  is_successor = true;
  const pid_t pid = fork();
  is_successor = false;
  return pid;
}

int Depth() { return depth; }

// The mask is for signals that the model has given their default action, or never had another one.
Undisturbed::Undisturbed() : is_forked_(depth > 0) {
  if (!is_forked_) return;
  ++undisturbed;
  sigset_t set;
  sigfillset(&set);
  for (const int fault : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP}) sigdelset(&set, fault);
  pthread_sigmask(SIG_BLOCK, &set, &before_);
}

Undisturbed::~Undisturbed() {
  if (!is_forked_) return;
  const int signal = --undisturbed == 0 ? delayed.load() : 0;
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  if (signal != 0) EndUndisturbed(signal);
}

}  // namespace envpack::forks
