// Requests that the model makes itself, in 24.10: "BLS", with one response or a stream of them.
#include <pthread.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "abi/wire_24_10.h"
#include "shm/sync.h"

namespace envpack::abi::r24_10 {

namespace {

// Lets the server go on when the stub has read its answer, and on every other way out too: the server waits
// for it without a limit.
class Release {
 public:
  explicit Release(pthread_cond_t* condition) : condition_(condition) {}
  ~Release() { shm::Notify(condition_); }
  Release(const Release&) = delete;
  Release& operator=(const Release&) = delete;

 private:
  pthread_cond_t* condition_;
};

}  // namespace

// The server has no flag by which it says that the answer is there, only the condition. What it does set
// before it starts is `response_handle`, so a wake-up without that is not meant. If there are tensors on a
// GPU, it wakes us once before the answer, with buffers for them.
InferResponse Wire24_10::Infer(const abi::Request& request, bool decoupled) {
  Writer writer(region_);
  const Handle handle = writer.WriteRequest(request, decoupled);
  const shm::Block& block = writer.Make(sizeof(RequestBatch) + sizeof(Handle));
  auto* batch = block.As<RequestBatch>();
  *batch = RequestBatch{};
  batch->batch_size = 1;
  *block.As<Handle>(sizeof(RequestBatch)) = handle;
  const Call call =
      MakeCall(writer, decoupled ? CommandNumber::kInferStreamExecRequest : CommandNumber::kInferExecRequest,
               block.handle());
  const shm::Block message = region_.Load(call.message);
  const auto* answer = message.As<Message>();

  shm::Lock lock(call.mutex);
  to_server_.Push(call.message);
  do lock.Wait(call.condition);
  while (answer->response_handle == 0);
  std::optional<std::string> failure;
  if (batch->gpu_buffers != 0) {
    failure = Attempt([&] { FillBuffers(batch->gpu_buffers, writer.device_tensors()); });
    shm::Notify(call.condition);
    lock.Wait(call.condition);
  }
  const Release release(call.condition);
  if (failure) throw ServerFailed(*failure);
  return TakeInferResponse(answer->response_handle);
}

// Reads the answer out of the message that the server has made for it.
InferResponse Wire24_10::TakeInferResponse(Handle answer) {
  const shm::Block message = region_.Load(answer);
  const shm::Block block = region_.Load(message.As<Message>()->args);
  const auto* batch = block.As<ResponseBatch>();
  if (batch->has_error) {
    throw ServerFailed(
        ErrorText(batch->is_error_set, batch->error, "An error occurred while performing BLS request."));
  }
  return reader_.ReadInferResponse(*block.As<Handle>(sizeof(ResponseBatch)));
}

// The server's thread that runs the model's callback waits until the response has been read.
InferResponse Wire24_10::TakeStreamResponse(const Message& message) {
  const shm::Block block = region_.Load(message.args);
  auto* batch = block.As<ResponseBatch>();
  const shm::Block mutex = region_.Load(message.response_mutex);
  const shm::Block condition = region_.Load(message.response_cond);
  InferResponse response;
  if (batch->has_error) {
    response.response.error = abi::Error{ErrorText(batch->is_error_set, batch->error)};
  } else {
    response = reader_.ReadInferResponse(*block.As<Handle>(sizeof(ResponseBatch)));
  }
  const shm::Lock lock(mutex.As<pthread_mutex_t>());
  batch->waiting_on_stub = true;
  shm::Notify(condition.As<pthread_cond_t>());
  return response;
}

}  // namespace envpack::abi::r24_10
