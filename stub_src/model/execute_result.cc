#include "model/execute_result.h"

#include "module/error.h"

namespace py = pybind11;

namespace envpack::model {

namespace {

std::string TypeOf(py::handle object) { return py::str(py::type::handle_of(object)); }

std::shared_ptr<module::InferenceResponse> TakeResponse(py::handle item) {
  if (item.is_none()) {
    throw module::ModelException(
        "execute returned None in place of an InferenceResponse; responses by way of a response sender are "
        "not "
        "supported by this stub.");
  }
  if (!py::isinstance<module::InferenceResponse>(item)) {
    throw module::ModelException(
        "Expected an 'InferenceResponse' object in the execute function return list, found type '" +
        TypeOf(item) + "'.");
  }
  return item.cast<std::shared_ptr<module::InferenceResponse>>();
}

}  // namespace

Responses TakeResponses(const py::object& result, const Requests& requests) {
  if (!py::isinstance<py::list>(result)) {
    throw module::ModelException("Expected a list in the execute return, found type '" + TypeOf(result) +
                                 "'.");
  }
  const auto list = py::reinterpret_borrow<py::list>(result);
  if (list.size() != requests.size()) {
    throw module::ModelException(
        "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
        "InferenceRequest(s) size is:" +
        std::to_string(requests.size()) +
        ", and InferenceResponse(s) size is:" + std::to_string(list.size()) + "\n");
  }
  Responses responses;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    responses.push_back(TakeResponse(list[i]));
    responses.back()->Prune(requests[i]->value().requested_outputs);
  }
  return responses;
}

}  // namespace envpack::model
