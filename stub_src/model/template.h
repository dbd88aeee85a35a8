// A template: a process with the model's module imported, from which the workers of its instances are forked.
#pragma once

#include <memory>
#include <optional>

#include "model/python_model.h"
#include "two_halves/body.h"

namespace envpack::model {

struct WarmStart {
  Assignment assignment;
  std::unique_ptr<PythonModel> model;  // initialized if the assignment asks for that
};

// Imports the model and serves fronts until none needs the template; then the process ends. Returns in each
// worker. Returns nothing if the model cannot be imported, or leaves too little room: workers then start
// without a template, and report why. Needs a running Python and the GIL. Throws std::system_error.
std::optional<WarmStart> ServeAsTemplate(const TemplateTask& task);

}  // namespace envpack::model
