// The server's side of the conversation: control record, five queues, requests out, answers in.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "abi/records.h"
#include "layouts.h"
#include "peer_queue.h"
#include "peer_region.h"

namespace envpack::test {

namespace records = abi::records;

// Where the bytes of a tensor lie on a GPU: in a pool, or in an allocation that an IPC handle names.
struct PeerDevice {
  std::int64_t device = 0;
  std::uint64_t offset = 0;
  bool in_pool = false;
  std::string handle;  // 64 bytes
  std::uint64_t release_id = 0;
};

struct PeerTensor {
  std::string name;
  std::int32_t dtype;
  std::vector<std::int64_t> dims;
  std::string bytes;
  bool apart = false;                               // memory record in a block of its own
  std::optional<PeerDevice> device = std::nullopt;  // instead of in `bytes`, whose size still counts
};

struct PeerRequest {
  std::vector<PeerTensor> inputs;
  std::vector<std::string> outputs;
  std::string id;
  std::string parameters = "{}";
  std::int64_t response_factory = 0;  // its address, as far as the stub is told
};

struct PeerResponse {
  std::vector<PeerTensor> outputs;
  std::optional<std::string> error;
  std::int32_t code = 0;
  std::string parameters = "";
  std::uint64_t stream = 0;  // what the server calls the stream that it belongs to
  bool is_last = true;
};

struct ExecuteAnswer {
  std::optional<std::string> error;
  std::vector<PeerResponse> responses;
  bool factories_deleted = false;
};

// What a response sender has sent.
struct SentResponse {
  std::optional<PeerResponse> response;
  std::uint32_t flags;
  std::int64_t response_factory;
};

struct LogLine {
  std::string file;
  std::int32_t line;
  std::string message;
  std::int32_t level;
};

// What a model has asked another.
struct PeerAsked {
  bool decoupled;
  std::string model;
  std::string id;
  std::string parameters;
  std::vector<PeerTensor> inputs;
  std::vector<std::string> outputs;
};

// What a model asks of the server in a record that both fill: metrics, or other models.
struct PeerExchange {
  std::string name;     // of a metric family or a model
  std::string labels;   // of a metric
  std::size_t buckets;  // how many
  double operation_value;
};

class Peer {
 public:
  struct Options {
    int release = ReleaseUnderTest();
    std::size_t size = 1 << 20;
    bool decoupled = false;
    std::uint64_t slots = 1000;
  };
  Peer() : Peer(Options{}) {}
  explicit Peer(const Options& options);

  const Layouts layouts;
  PeerRegion region;
  Handle control;
  PeerQueue to_stub_commands;
  PeerQueue from_stub_answers;
  PeerQueue from_stub_requests;
  PeerQueue to_stub_unasked;
  PeerQueue memory_manager;

  // The stub's first message, in the releases that wait for it.
  void TakeSign();

  // Whether the stub sets the flag again within the second that the server gives it.
  bool BeatsAgain();

  // Commands. Each returns the message's handle, which the caller releases with Drop() after the answer.
  Handle SendAutoComplete(const std::string& config);
  Handle SendInitialize(const std::map<std::string, std::string>& arguments);
  Handle SendExecute(const std::vector<PeerRequest>& requests);
  Handle SendFinalize();
  Handle SendCommand(std::int32_t number);
  // Releases everything made for commands so far.
  void Drop();

  // Answers, read and acknowledged as the server does.
  std::optional<std::string> TakeInitialize();  // the error
  std::optional<std::string> TakeAutoComplete(std::string* config);
  ExecuteAnswer TakeExecute();
  bool TakeFinalize(Handle sent);
  LogLine TakeLog();
  // A sender's response, acknowledged, or refused with an error.
  SentResponse TakeSent(const std::string& error = "", Handle buffers = 0);
  // The response factory that the stub wants deleted.
  std::int64_t TakeFactoryCleanup();
  // Serves one exchange of that command, about metrics or about models.
  PeerExchange TakeMetrics(const std::string& command, double value = 0, const std::string& error = "");
  PeerExchange TakeModels(const std::string& command, bool is_ready, const std::string& error = "");
  // Sends a further response of a stream; returns when the stub has taken it.
  void SendStreamResponse(const PeerResponse& response);
  // The stream that the stub has read to its end, or wants cancelled.
  std::uint64_t TakeStreamCleanup();
  std::uint64_t TakeStreamCancel();
  // Asks whether the model is ready; gives the answer, or the error instead.
  bool AskReadiness(std::string* error);
  // Answers whether the request is cancelled; returns its response factory.
  std::int64_t TakeCancelQuery(bool cancelled);
  // Offers a CUDA pool; returns the error that the stub answers, if it does.
  std::optional<std::string> OfferCudaPool(const std::string& handle = "", int device = 0);
  // Tells where the bytes of GPU tensors shall go, for a batch that TakeExecute() has read; returns when the
  // stub has said that it is done.
  void SendLoadGpuBuffers(Handle buffers);
  // Serves a request of the model: `buffers` are for its GPU inputs if not 0. Returns the request.
  PeerAsked ServeInfer(const PeerResponse& response, Handle buffers = 0);

  // Building blocks.
  Handle MakeString(const std::string& text);
  Handle MakeTensor(const PeerTensor& tensor);
  Handle MakeResponse(const PeerResponse& response);
  Handle MakeRequest(const PeerRequest& request);
  Handle MakeBatch(const std::vector<PeerRequest>& requests);
  // Buffers for GPU tensors: each is a place on a device, or without one that many bytes of the region.
  Handle MakeGpuBuffers(const std::vector<PeerTensor>& places, const std::string& error = "");
  // The bytes of a buffer that lies in the region.
  std::string ReadBuffer(Handle buffers, std::size_t index);
  Handle MakeDict(const std::map<std::string, std::string>& entries);
  std::string ReadString(Handle handle);
  PeerTensor ReadTensor(Handle handle);
  PeerResponse ReadResponse(Handle handle);

 private:
  // A record of this release that lies `offset` bytes into a block.
  Fields FieldsOf(const std::string& record, Handle handle, std::size_t offset = 0);
  // A block with that record in it, zeroed, and `extra` bytes behind it.
  Handle Make(const std::string& record, std::size_t extra = 0);
  // Pops a request of the stub, which must be that command; ReleaseRequest() gives back what it holds.
  Handle TakeRequest(const std::string& command);
  Handle TakeRequest(PeerQueue& queue, const std::string& command);
  // Where the stub asks other models and sends responses; before 24.10 between its answers.
  PeerQueue& own_requests() { return layouts.release() >= 2410 ? from_stub_requests : from_stub_answers; }
  SentResponse ServeSent(Handle message, const std::string& error, Handle buffers);
  std::int64_t TakeCleanup(const std::string& command);
  Handle MakeInlineMessage(const std::string& command, Handle args);
  std::string MemoryOf(const PeerTensor& tensor);
  Handle MakeError(const std::string& text, std::int32_t code);
  void PutTexts(const Fields& record, const PeerRequest& request);
  std::string ReadInlineString(Handle handle, std::size_t* at);
  PeerAsked ReadAsked(Handle request, bool decoupled);
  void ReleaseRequest(Handle message);
  Handle Own(std::size_t size);
  Handle Send(const std::string& command, Handle args);
  // Pops an answer, which must be that command, and holds a reference to it; Acknowledge() gives it back.
  Handle Expect(const std::string& command);
  void Acknowledge(Handle message);

  std::vector<Handle> owned_;
};

}  // namespace envpack::test
