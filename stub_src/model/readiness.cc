#include "model/readiness.h"

#include <pthread.h>
#include <pybind11/pybind11.h>

#include <cstdio>
#include <exception>
#include <thread>
#include <utility>

#include "model/attempt.h"

namespace envpack::model {

void Readiness::Take(std::unique_ptr<abi::ReadinessQuestion> question) {
  const std::lock_guard lock(mutex_);
  questions_.push_back(std::move(question));
  if (std::exchange(is_serving_, true)) return;
  std::thread thread([self = shared_from_this()] { self->Serve(); });
  pthread_setname_np(thread.native_handle(), "pbstub-ready");
  thread.detach();
}

// Ends when there is nothing more to answer; the next question starts another thread.
void Readiness::Serve() {
  for (;;) {
    std::unique_lock lock(mutex_);
    if (questions_.empty()) {
      is_serving_ = false;
      return;
    }
    const auto question = std::move(questions_.front());
    questions_.pop_front();
    lock.unlock();
    try {
      question->Answer(Ask());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "envpack stub: the server cannot be told whether the model is ready: %s\n",
                   error.what());
    }
  }
}

abi::ReadinessAnswer Readiness::Ask() {
  const pybind11::gil_scoped_acquire locked;
  const auto model = model_.lock();
  if (!model) return abi::Failure{"the model has been finalized"};
  bool is_ready = false;
  if (auto failure = Attempt([&] { is_ready = model->IsReady(); })) return *std::move(failure);
  return is_ready;
}

}  // namespace envpack::model
