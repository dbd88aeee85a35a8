#include "model/import_model.h"

#include <filesystem>
#include <string>
#include <vector>

#include "module/error.h"
#include "module/module.h"

namespace py = pybind11;
namespace fs = std::filesystem;

namespace envpack::model {

namespace {

constexpr int kDeepestCause = 16;  // exceptions can be each other's causes

struct Target {
  fs::path file;
  std::vector<fs::path> search;  // what sys.path gains, in order
  std::string module;
};

// A folder in the last argument means a backend whose own model.py serves all its models. A folder without
// that file is just a backend directory with another name than "python", and the model's own file is meant.
Target FindTarget(const abi::Launch& launch) {
  const fs::path runtime(launch.runtime_directory);
  if (launch.runtime_directory != "DEFAULT" && fs::exists(runtime / "model.py")) {
    return {runtime / "model.py", {runtime, launch.backend_directory}, "model"};
  }
  const fs::path file(launch.model_file);
  const fs::path version = file.parent_path();
  return {file,
          {version, version.parent_path(), launch.backend_directory},
          version.filename().string() + "." + file.stem().string()};
}

void Check(const Target& target) {
  if (target.file.extension() != ".py") {
    throw module::ModelException("Model name must end with '.py'. Model name is \"" +
                                 target.file.filename().string() + "\".");
  }
  if (!fs::exists(target.file)) {
    throw module::ModelException("Python model file not found in '" + target.file.string() + "'");
  }
}

// What was raised first, of those that Python itself would show. NumPy answers each failed import of its
// libraries with advice about other causes; the loader's words, which name the missing file, are below.
std::string FirstError(const py::error_already_set& error) {
  py::object first = error.value();
  for (int depth = 0; depth < kDeepestCause; ++depth) {
    py::object below = first.attr("__cause__");
    if (below.is_none() && !first.attr("__suppress_context__").cast<bool>())
      below = first.attr("__context__");
    if (below.is_none()) break;
    first = below;
  }
  return py::type::of(first).attr("__name__").cast<std::string>() + ": " + py::str(first).cast<std::string>();
}

py::module_ ImportUtilities() {
  try {
    py::module_::import("numpy");
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_ImportError)) throw;
    const auto prefix = py::module_::import("sys").attr("prefix").cast<std::string>();
    throw module::ModelException("NumPy, which every model needs, cannot be imported from '" + prefix +
                                 "': " + FirstError(error) + "\n\n" + error.what());
  }
  return py::module_::import("triton_python_backend_utils");
}

}  // namespace

py::module_ ImportModel(const abi::Launch& launch, abi::Wire& wire) {
  const Target target = FindTarget(launch);
  Check(target);
  auto path = py::module_::import("sys").attr("path");
  for (const fs::path& folder : target.search) path.attr("append")(folder.string());
  py::module_ utilities = ImportUtilities();
  module::CompleteUtilities(utilities, wire, fs::path(launch.model_file).parent_path().string());
  return py::module_::import(target.module.c_str());
}

}  // namespace envpack::model
