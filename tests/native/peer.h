// The server's side of the protocol: the control record, five queues, commands to the stub, answers from it.
#pragma once

#include <pthread.h>

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "abi/records.h"
#include "layouts.h"
#include "peer_queue.h"
#include "peer_region.h"

namespace envpack::test {

namespace records = abi::records;

// The location of a tensor's bytes on a GPU: in the pool, or in an allocation with an IPC handle.
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
  bool separate = false;                            // the Memory record in a separate block
  std::optional<PeerDevice> device = std::nullopt;  // replaces `bytes`, except for its size
};

struct PeerRequest {
  std::vector<PeerTensor> inputs;
  std::vector<std::string> outputs;
  std::string id;
  std::string parameters = "{}";
  std::int64_t response_factory = 0;  // the address that the stub gets
  std::int64_t address = 0;
  std::uint32_t flags = 3;
  std::uint64_t timeout = 1500000;
  std::uint64_t correlation_number = 77;
  std::string correlation_text = "";  // if not empty, replaces the number
  std::uint64_t trace = 0;            // address in the server
  std::string trace_context = "";
  bool has_trace = true;  // otherwise the record has no trace, where it may have none
};

struct PeerResponse {
  std::vector<PeerTensor> outputs;
  std::optional<std::string> error;
  std::int32_t code = 0;
  bool has_reason = true;  // whether the text of the error is set
  std::string parameters = "";
  std::uint64_t stream = 0;  // id of its stream
  bool is_last = true;
  bool is_none = false;  // the batch has no response at this place
};

struct ExecuteAnswer {
  std::optional<std::string> error;
  std::vector<PeerResponse> responses;
  bool factories_deleted = false;
};

// A message of a response sender.
struct SentResponse {
  std::optional<PeerResponse> response;
  std::uint32_t flags;
  std::int64_t response_factory;
  std::int64_t request;
};

struct LogLine {
  std::string file;
  std::int32_t line;
  std::string message;
  std::int32_t level;
};

// A BLS request.
struct PeerInferRequest {
  bool decoupled;
  std::string model;
  std::string id;
  std::string parameters;
  std::vector<PeerTensor> inputs;
  std::vector<std::string> outputs;
  std::int64_t version;
  std::uint32_t flags;
  std::uint64_t timeout;
  std::uint64_t correlation_number;
  std::string correlation_text;
  std::int32_t preferred_memory;
  std::int64_t preferred_device;
  std::uint64_t trace;  // 0 in releases without traces
  std::string trace_context;
  std::uint32_t release_flags;  // 1 in releases without them, which release every request
};

// A request of the stub in a record that both sides fill: metrics or model control.
struct PeerExchange {
  std::string name;         // of a metric family or a model
  std::string description;  // of a metric family
  std::int32_t kind;        // of a metric family
  std::string labels;       // of a metric
  std::vector<double> buckets;
  bool has_buckets;  // whether there is a block with them
  double operation_value;
  std::uint64_t metric;  // addresses
  std::uint64_t family;
  std::string version;  // of a model
  std::string config;
  bool unload_dependents;
  std::map<std::string, std::string> files;
};

// A cancellation query: addresses in the server.
struct PeerQuery {
  std::int64_t response_factory;
  std::int64_t request;
};

class Peer {
 public:
  struct Options {
    int release = ReleaseUnderTest();
    std::size_t size = 1 << 20;
    bool decoupled = false;
    std::uint64_t slots = 1000;
    // Wakes the stub several times before each answer, as pthread conditions may.
    bool wakes_spuriously = false;
  };
  Peer() : Peer(Options{}) {}
  explicit Peer(const Options& options);

  const Layouts layouts;
  PeerRegion region;
  Handle control;
  PeerQueue to_stub_commands;
  PeerQueue from_stub_answers;
  PeerQueue from_stub_requests;
  PeerQueue to_stub_messages;
  PeerQueue memory_manager;

  // Takes the stub's startup message, in releases that wait for it.
  void TakeStartupMessage();

  // Whether the stub sets the heartbeat flag again within the time.
  bool BeatsAgain(int milliseconds = TimeoutSeconds() * 1000);

  // Commands. Each returns the handle of the message. Release it with Drop() after the answer.
  Handle SendAutoComplete(const std::string& config);
  Handle SendInitialize(const std::map<std::string, std::string>& arguments);
  Handle SendExecute(const std::vector<PeerRequest>& requests);
  Handle SendFinalize();
  Handle SendCommand(std::int32_t number);
  // Releases the blocks of all commands so far.
  void Drop();

  // Answers. Each is read and acknowledged the way the server does.
  std::optional<std::string> TakeInitialize();  // returns the error
  std::optional<std::string> TakeAutoComplete(std::string* config);
  ExecuteAnswer TakeExecute();
  bool TakeFinalize(Handle sent);
  LogLine TakeLog();
  // Whether the next request of the stub, which stays in the queue, is this command.
  bool NextRequestIs(const std::string& command);
  // Whether the next one, which stays in its queue, is a request to another model.
  bool AwaitsInfer();
  // A response of a response sender, acknowledged or answered with an error.
  SentResponse TakeSent(const std::string& error = "", Handle buffers = 0);
  // Returns the response factory that the stub deletes.
  std::int64_t TakeFactoryCleanup();
  // Serves one exchange about metrics or model control.
  PeerExchange TakeMetrics(const std::string& command, double value = 0, const std::string& error = "");
  PeerExchange TakeModels(const std::string& command, bool is_ready, const std::string& error = "");
  // Sends a further response of a stream. Returns when the stub has read it.
  void SendStreamResponse(const PeerResponse& response);
  // The same in place of a response that the server could not write. Without a text, the server gives no
  // reason.
  void SendStreamFailure(const std::optional<std::string>& error);
  // Returns the stream that the stub has ended, or cancels.
  std::uint64_t TakeStreamCleanup();
  std::uint64_t TakeStreamCancel();
  // Sends a readiness probe. Returns the answer, or sets the error.
  bool ProbeReadiness(std::string* error);
  // Sends one without waiting for the answer. Returns the handle of the record.
  Handle SendProbe();
  PeerQuery TakeCancelQuery(bool cancelled);
  // Sends a CUDA memory pool. Returns the error of the stub, if any.
  std::optional<std::string> OfferCudaPool(const std::string& handle = "", int device = 0);
  // Sends the destinations of the GPU tensors of a batch that TakeExecute() has read. Returns when the stub
  // has copied them.
  void SendLoadGpuBuffers(Handle buffers);
  // Serves a BLS request. `buffers` are the destinations of its GPU inputs, if not 0. Returns the request.
  PeerInferRequest ServeInfer(const PeerResponse& response, Handle buffers = 0);
  // Fails a BLS request as a whole. Without a text, the server gives no reason.
  void RefuseInfer(const std::optional<std::string>& error);

  // Building blocks.
  Handle MakeString(const std::string& text);
  Handle MakeTensor(const PeerTensor& tensor);
  Handle MakeResponse(const PeerResponse& response);
  Handle MakeRequest(const PeerRequest& request);
  Handle MakeBatch(const std::vector<PeerRequest>& requests);
  // Buffers for GPU tensors, each on its tensor's device or, without a device, in the region.
  Handle MakeGpuBuffers(const std::vector<PeerTensor>& places, const std::string& error = "");
  // The bytes of a buffer in the region.
  std::string ReadBuffer(Handle buffers, std::size_t index);
  Handle MakeDict(const std::map<std::string, std::string>& entries);
  std::string ReadString(Handle handle);
  std::map<std::string, std::string> ReadDict(Handle handle);
  PeerTensor ReadTensor(Handle handle);
  PeerResponse ReadResponse(Handle handle);

 private:
  // A record of this release at `offset` in a block.
  Fields FieldsOf(const std::string& record, Handle handle, std::size_t offset = 0);
  // A block with a zeroed record and `extra` bytes after it.
  Handle Make(const std::string& record, std::size_t extra = 0);
  // Pops a request of the stub, which must be `command`. Release it with ReleaseRequest().
  Handle TakeRequest(const std::string& command);
  Handle TakeRequest(PeerQueue& queue, const std::string& command);
  // The queue of BLS requests and of responses; before 24.10 that of the answers.
  PeerQueue& request_queue() { return layouts.release() >= 2410 ? from_stub_requests : from_stub_answers; }
  SentResponse ServeSent(Handle message, const std::string& error, Handle buffers);
  std::int64_t TakeCleanup(const std::string& command);
  // Serves a BLS request: `fill` writes the batch of the answer, which the handle of a response follows.
  PeerInferRequest ServeInferWith(const std::function<void(const Fields&)>& fill, Handle buffers);
  // Sends a message of a stream: `fill` writes its batch, which the handle of a response follows.
  void SendStreamWith(const std::function<void(const Fields&)>& fill);
  void PutResponse(const Fields& batch, const PeerResponse& response);
  void PutFailure(const Fields& batch, const std::optional<std::string>& error);
  void PutBuffers(const Fields& batch, Handle buffers);
  void WakeSpuriously(pthread_mutex_t* mutex, pthread_cond_t* condition);
  Handle MakeProbe();
  Handle MakeInlineMessage(const std::string& command, Handle args);
  std::string MemoryOf(const PeerTensor& tensor);
  Handle MakeError(const std::string& text, std::int32_t code);
  void PutTexts(const Fields& record, const PeerRequest& request);
  std::string ReadInlineString(Handle handle, std::size_t* at);
  void ReadNumbers(const Fields& record, PeerInferRequest* bls);
  PeerInferRequest ReadInferRequest(Handle request, bool decoupled);
  void ReleaseRequest(Handle message);
  Handle Own(std::size_t size);
  Handle Send(const std::string& command, Handle args);
  // Pops an answer, which must be `command`, and adds a reference. Release it with Acknowledge().
  Handle Expect(const std::string& command);
  void Acknowledge(Handle message);

  const bool wakes_spuriously_;
  std::mutex owning_;  // several threads may send
  std::vector<Handle> owned_;
};

}  // namespace envpack::test
