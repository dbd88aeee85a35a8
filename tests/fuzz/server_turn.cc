// The linker redirects pthread_cond_wait() to this file (--wrap).
#include "server_turn.h"

#include <pthread.h>

#include <utility>

namespace {

std::function<void()> turn;

}  // namespace

namespace envpack::fuzz {

ServerTurn::ServerTurn(std::function<void()> act) { turn = std::move(act); }

ServerTurn::~ServerTurn() { turn = nullptr; }

}  // namespace envpack::fuzz

extern "C" {

int __real_pthread_cond_wait(pthread_cond_t*, pthread_mutex_t*);

int __wrap_pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  if (!turn) return __real_pthread_cond_wait(condition, mutex);
  turn();
  return 0;
}

}  // extern "C"
