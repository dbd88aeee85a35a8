#include "module/inference.h"

#include <utility>
#include <variant>

#include "forks.h"
#include "module/requirement.h"
#include "module/response.h"
#include "module/response_iterator.h"
#include "module/server_link.h"

namespace py = pybind11;

namespace envpack::module {

namespace {

// Runs `ask` without the GIL; nothing that goes wrong is thrown, it becomes what `failed` makes of it.
template <typename Ask, typename Failed>
auto Unlocked(Ask ask, Failed failed) {
  const py::gil_scoped_release unlocked;
  try {
    return ask();
  } catch (const std::exception& error) {
    return failed(abi::Error{error.what(), abi::ErrorCode::kInternal});
  }
}

}  // namespace

py::object Infer(const std::shared_ptr<InferenceRequest>& request, bool decoupled) {
  const ServerLink& link = TheServer();
  const auto streams = link.streams;
  if (!streams) throw ModelException("BLS is only supported during the 'execute' function.");
  abi::Wire& wire = *link.wire;
  const abi::Request value = request->ToValue();
  if (std::holds_alternative<std::string>(value.correlation_id)) {
    Require(wire, abi::Feature::kTextCorrelationIds, "Correlation IDs that are strings need");
  }
  if (value.parameters != abi::Request().parameters) {
    Require(wire, abi::Feature::kRequestParameters, "Parameters of a model's own request need");
  }
  if (decoupled) {
    if (forks::Depth() > 0) {
      throw ModelException(
          "A stream of responses reaches the model's own process only, not one that it forked.");
    }
    auto opened = Unlocked([&] { return streams->Ask(value); }, &channel::Streams::OnlyError);
    return py::cast(std::make_shared<ResponseIterator>(std::move(opened), streams));
  }
  abi::Response response = Unlocked([&] { return wire.Infer(value, false).response; },
                                    [](abi::Error error) { return abi::Response{{}, std::move(error), ""}; });
  return py::cast(std::make_shared<InferenceResponse>(std::move(response)));
}

py::object InferAsync(const std::shared_ptr<InferenceRequest>& request, bool decoupled) {
  const auto loop = py::module_::import("asyncio").attr("get_running_loop")();
  return loop.attr("run_in_executor")(
      py::none(), py::cpp_function([request, decoupled] { return Infer(request, decoupled); }));
}

void BindInference(py::module_& module) { BindResponseIterator(module); }

}  // namespace envpack::module
