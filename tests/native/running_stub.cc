#include "running_stub.h"

#include "check.h"

namespace envpack::test {

const char kModel[] = R"(
import os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config._model_config["max_batch_size"] = 4
        return config

    def initialize(self, args):
        self.args = args

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        tensor = pb_utils.get_input_tensor_by_name(request, "IN")
        if tensor is None:
            raise ValueError("nothing to do")
        data = tensor.as_numpy()
        if request.request_id() == "error":
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("requested error", pb_utils.TritonError.NOT_FOUND))
        if request.request_id() in ("large", "huge"):
            array = np.full({"large": 5000000, "huge": 30000000}[request.request_id()], 1.5, dtype=np.float32)
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)])
        if request.request_id() == "log":
            pb_utils.Logger.log_warn("from the model")
        if request.request_id() == "args":
            data = np.array([self.args["model_name"], str(len(self.args))], dtype=object)
        elif data.dtype == object:
            data = np.array([element + b"!" for element in data.ravel()], dtype=object).reshape(data.shape)
        else:
            data = data * 2
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", data), pb_utils.Tensor("MORE", data)])

    def finalize(self):
        with open(os.path.join(pb_utils.get_model_dir(), "finalized"), "w") as file:
            file.write("yes")
)";

std::string ScriptModel(const std::string& more) {
  return R"(
import ctypes, json, os, threading
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.kept = {}

    def execute(self, requests):
        responses = [self.run(request) for request in requests]
        return None if "decoupled" in os.environ else responses

    def run(self, request):
        names = {**globals(), "request": request, "kept": self.kept, "answer": None}
        exec(request.request_id(), names)
        return names.get("response") or as_response(names["answer"])

def as_response(answer):
    text = json.dumps(answer).encode()
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.frombuffer(text, dtype=np.int8))])
)" + more;
}

const std::map<std::string, std::string> kArguments{{"model_config", "{}"}, {"model_name", "model"}};

std::string Floats(std::initializer_list<float> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(float)};
}

PeerRequest RequestOf(const std::string& id, const PeerTensor& tensor) {
  PeerRequest request;
  request.inputs = {tensor};
  request.id = id;
  return request;
}

const PeerTensor kTwoFloats{"IN", 11, {2}, Floats({1.5, -2.0})};

std::optional<std::string> RunningStub::Initialize() {
  peer.SendInitialize(kArguments);
  auto error = peer.TakeInitialize();
  peer.Drop();
  return error;
}

ExecuteAnswer RunningStub::Execute(const std::vector<PeerRequest>& requests) {
  peer.SendExecute(requests);
  auto answer = peer.TakeExecute();
  peer.Drop();
  return answer;
}

void RunningStub::SkipReport() { CHECK_HAS(peer.TakeLog().message, "envpack-stub {"); }

}  // namespace envpack::test
