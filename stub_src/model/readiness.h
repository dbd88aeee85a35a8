// Readiness probes of the server, from 26.03 on, answered with the model's is_ready().
#pragma once

#include <deque>
#include <memory>
#include <mutex>

#include "abi/wire.h"
#include "model/python_model.h"

namespace envpack::model {

// Answers probes one after the other in a separate thread: is_ready() may take long, and neither requests nor
// responses of streams may wait for it.
class Readiness : public std::enable_shared_from_this<Readiness> {
 public:
  // Sets the model. Probes fail after its destruction. Needs the GIL.
  void SetModel(std::weak_ptr<PythonModel> model) { model_ = std::move(model); }

  // Queues a probe. Returns at once. Call it without the GIL.
  void Add(std::unique_ptr<abi::ReadinessProbe> probe);

 private:
  void Serve();
  abi::ReadinessAnswer Check();

  std::weak_ptr<PythonModel> model_;  // guarded by the GIL
  std::mutex mutex_;                  // guards the members below
  std::deque<std::unique_ptr<abi::ReadinessProbe>> probes_;
  bool is_serving_ = false;
};

}  // namespace envpack::model
