#include "model/readiness.h"

#include <pybind11/pybind11.h>

#include <cstdio>
#include <exception>
#include <utility>

#include "base/threads.h"
#include "model/interpreter.h"

namespace envpack::model {

void Readiness::Add(std::unique_ptr<abi::ReadinessProbe> probe) {
  const std::lock_guard lock(mutex_);
  probes_.push_back(std::move(probe));
  if (is_serving_) return;
  // Without a thread the next probe tries again.
  StartThread("pbstub-ready", [self = shared_from_this()] { self->Serve(); }).detach();
  is_serving_ = true;
}

// Returns when no probe is left. The next probe starts another thread.
void Readiness::Serve() {
  for (;;) {
    std::unique_lock lock(mutex_);
    if (probes_.empty()) {
      is_serving_ = false;
      return;
    }
    const auto probe = std::move(probes_.front());
    probes_.pop_front();
    lock.unlock();
    try {
      probe->Answer(Check());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "envpack stub: cannot answer a readiness probe of the server: %s\n", error.what());
    }
  }
}

abi::ReadinessAnswer Readiness::Check() {
  const pybind11::gil_scoped_acquire locked;
  const auto model = model_.lock();
  if (!model) return abi::Failure{"the model has been finalized"};
  bool is_ready = false;
  if (auto failure = CallModel([&] { is_ready = model->IsReady(); })) return *std::move(failure);
  return is_ready;
}

}  // namespace envpack::model
