// The model's is_ready(), which the server asks from 26.03 on.
#pragma once

#include <deque>
#include <memory>
#include <mutex>

#include "abi/wire.h"
#include "model/python_model.h"

namespace envpack::model {

// Answers questions one after the other in a thread of its own, since is_ready() may take its time and
// neither a request nor a response of a stream may wait for it.
class Readiness : public std::enable_shared_from_this<Readiness> {
 public:
  // The model to ask, for as long as it lives. Needs the GIL.
  void Watch(std::weak_ptr<PythonModel> model) { model_ = std::move(model); }

  // Returns at once. Call it without the GIL.
  void Take(std::unique_ptr<abi::ReadinessQuestion> question);

 private:
  void Serve();
  abi::ReadinessAnswer Ask();

  std::weak_ptr<PythonModel> model_;  // guarded by the GIL
  std::mutex mutex_;                  // guards what follows
  std::deque<std::unique_ptr<abi::ReadinessQuestion>> questions_;
  bool is_serving_ = false;
};

}  // namespace envpack::model
