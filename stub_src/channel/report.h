// The report by which the front knows how far a worker has come.
#pragma once

#include <optional>
#include <utility>

#include "abi/values.h"
#include "base/descriptor.h"

namespace envpack::channel {

// What the worker is doing until it serves requests.
enum class Step : char { kStart = 1, kImport, kComplete, kInitialize };

// In words, for "while …".
const char* Describe(Step step);

// The report of a worker, in a memory file. It survives any end of the worker and has no size limit. A pipe
// would remain open in processes that the model has started.
class Report {
 public:
  // Throws std::system_error.
  Report();
  // The report that another process has created.
  explicit Report(Descriptor file) : file_(std::move(file)) {}

  int descriptor() const { return file_.number(); }

  // The worker's side. An answer is the completed configuration or a failure; a serving worker gives none.
  void Reach(Step step);
  void Finish(const abi::AutoCompleteAnswer& answer);

  // The front's side: the answer if there is one, and otherwise the step. Throws std::system_error.
  std::optional<abi::AutoCompleteAnswer> Answer() const;
  Step Reached() const;

 private:
  Descriptor file_;
};

}  // namespace envpack::channel
