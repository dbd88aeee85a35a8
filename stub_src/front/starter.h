// Starts the workers of one stub: cold, by a fork of this process, or warm, by a fork of the model's
// template.
#pragma once

#include <memory>
#include <optional>

#include "channel/heartbeat.h"
#include "front/template.h"
#include "front/worker.h"
#include "two_halves/body.h"

namespace envpack::front {

class Starter {
 public:
  // The heartbeat must outlive the starter, and the starter its workers.
  Starter(channel::Heartbeat& heartbeat, bool uses_environment, bool is_warm)
      : heartbeat_(heartbeat), uses_environment_(uses_environment), is_warm_(is_warm) {}

  // Throws std::system_error if no process can be created.
  std::unique_ptr<Worker> Start(const Assignment& assignment);

 private:
  std::unique_ptr<Worker> StartCold(const Assignment& assignment);
  void FindTemplateFor(const Assignment& assignment);

  channel::Heartbeat& heartbeat_;
  const bool uses_environment_;
  const bool is_warm_;
  bool has_searched_ = false;
  std::optional<Template> template_;
};

}  // namespace envpack::front
