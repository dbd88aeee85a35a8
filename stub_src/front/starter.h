// Starts the workers of one stub: cold, by a fork of this process, or warm, by a fork of the model's
// template.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "channel/heartbeat.h"
#include "front/front.h"
#include "front/settings.h"
#include "front/template.h"
#include "front/worker.h"
#include "two_halves/body.h"

namespace envpack::front {

class Starter {
 public:
  // All references must outlive the starter.
  Starter(channel::Heartbeat& heartbeat, const Work& work, bool uses_environment, const Settings& settings)
      : heartbeat_(heartbeat), work_(work), uses_environment_(uses_environment), settings_(settings) {}

  // Throws std::system_error if no process can be created. What the assignment refers to must outlive the
  // worker.
  std::unique_ptr<Worker> Start(const Assignment& assignment);

 private:
  std::unique_ptr<Worker> StartCold(const Assignment& assignment);
  bool Order(const Assignment& assignment);
  void FindTemplateFor(const Assignment& assignment);

  channel::Heartbeat& heartbeat_;
  const Work& work_;
  const bool uses_environment_;
  const Settings& settings_;
  bool has_searched_ = false;
  std::optional<Template> template_;
};

}  // namespace envpack::front
