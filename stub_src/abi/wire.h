// The connection to the server, in terms of plain values.
//
// Only the Wire knows records, command numbers, queues and the order of an exchange. Each protocol epoch has
// its own implementation; the rest of the stub is the same for all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>

#include "abi/gpu_memory.h"
#include "abi/journal.h"
#include "abi/launch.h"
#include "abi/release.h"
#include "abi/values.h"
#include "shm/region.h"

namespace envpack::abi {

// The region cannot grow, typically because /dev/shm is full. The server has not seen the message.
using RegionFull = shm::RegionFull;

// Collects what a thread drops that lies in the region, so that all of it is released with one lock.
using ReleaseTogether = shm::ReleaseTogether;

// The server reports that an operation failed.
struct ServerError : std::runtime_error {
  using runtime_error::runtime_error;
};

// Whether the model is ready, or why that is unknown.
using ReadinessAnswer = std::variant<bool, Failure>;

// Answers a request of the server for the readiness of the model. The server waits some seconds for that. Any
// thread may call it, once.
using ReadinessProbe = std::function<void(const ReadinessAnswer&)>;

// A message that the server sends without a request of the stub.
using ServerMessage = std::variant<InferResponse, ReadinessProbe>;

// Must return quickly.
using ServerMessageHandler = std::function<void(ServerMessage)>;

// The commands that every stub must answer, whether or not it can run a model: the server waits.
//
// All functions may block until the server reacts, so never call them with the GIL held. They throw
// shm::CorruptRegion if the region contains invalid data, and RegionFull if it cannot grow.
class Session {
 public:
  virtual ~Session() = default;

  // Waits for the next command. Commands are received and answered in the main thread only.
  virtual Command Receive() = 0;

  // Each answers the command last received, and returns when the server has read the answer.
  virtual void AnswerAutoComplete(const AutoCompleteAnswer& answer) = 0;
  virtual void AnswerInitialize(const InitializeAnswer& answer) = 0;
  virtual void AnswerFinalize() = 0;
};

// Everything that a stub can send to the server. The rules of Session apply.
class Wire : public Session {
 public:
  // The release of the server, and the features that it has.
  virtual Release ServerRelease() const = 0;
  bool Has(Feature feature) const { return ServerRelease() >= Since(feature); }

  // Whether the model has an execution environment, and whether it is decoupled. Constant for a stub.
  virtual bool UsesEnvironment() const = 0;
  virtual bool Decoupled() const = 0;

  // Answers the command last received, like the answers above.
  virtual void AnswerExecute(const ExecuteAnswer& answer) = 0;

  // Whether the server deletes the response factories of a batch whose answer is a failure.
  virtual bool FailureDeletesFactories() const = 0;

  // Writes a line to the server's log. Any thread; only after an InitializeCommand, since the server reads no
  // log messages before.
  virtual void Log(const LogLine& line) = 0;

  // Whether Log() does not wait for the server.
  virtual bool LogsAtOnce() const { return false; }

  // Sends a response, or only flags, for a request that the server is waiting for. With kResponseFinal the
  // server deletes the request's response factory. Any thread. Throws ServerError.
  virtual void Send(const Origin& origin, const std::optional<Response>& response, std::uint32_t flags) = 0;

  // Requests the deletion of the response factory of a request that will not be answered. Any thread.
  virtual void DeleteResponseFactory(const Origin& origin) = 0;

  // Whether the client has cancelled a request whose final response has not been sent. Any thread.
  virtual bool IsCancelled(const Origin& origin) = 0;

  // Sets what happens to a request after execute(): kReleaseAll or kReleaseReschedule. Does not block.
  virtual void SetReleaseFlags(const Origin& origin, std::uint32_t flags) = 0;

  // Sends a request of the model to another model (BLS), and waits for the first response. With `decoupled`
  // the other model may send any number of responses: those after the first arrive through
  // ServeServerMessage(). Any thread. Throws ServerError if the server could not run the request.
  virtual InferResponse Infer(const Request& request, bool decoupled) = 0;

  // Whether a worker that has since died opened this stream. Its responses are discarded until the last one.
  virtual bool IsOldStream(StreamId stream) const = 0;

  // Ends a stream whose last response has arrived. Any thread.
  virtual void EndStream(StreamId stream) = 0;

  // Requests the cancellation of the request that a stream answers. Any thread.
  virtual void CancelStream(StreamId stream) = 0;

  // Allocates the bytes of `tensor` in the region. They may be written through `data` until the tensor is
  // sent; sending it copies nothing. Any thread, at any time.
  virtual Tensor Allocate(const Tensor& tensor) = 0;

  // Custom metrics, and control of other models. Any thread, as soon as Log() may be used. Each waits for the
  // server; LoadModel() until the model is loaded. Throws ServerError.
  virtual ServerAddress CreateMetricFamily(const MetricFamily& family) = 0;
  virtual void DeleteMetricFamily(ServerAddress family) = 0;
  virtual ServerAddress CreateMetric(ServerAddress family, const Metric& metric) = 0;
  virtual void DeleteMetric(ServerAddress metric) = 0;
  virtual void ChangeMetric(ServerAddress metric, MetricChange change, double value) = 0;
  virtual double MetricValue(ServerAddress metric) = 0;
  virtual void LoadModel(const ModelToLoad& model) = 0;
  virtual void UnloadModel(const std::string& name, bool unload_dependents) = 0;
  virtual bool IsModelReady(const std::string& name, const std::string& version) = 0;

  // Waits for one message that the server sends without a request, and processes it or passes it to
  // `handler`. One thread only, which must run before the model is initialised. Returns false when no further
  // message will come. A message that cannot be processed is reported on standard error.
  virtual bool ServeServerMessage(const ServerMessageHandler& handler) = 0;

  // Enables readiness probes of the server. Call it before initialize is answered.
  virtual void EnableReadinessProbes() = 0;

  // Free bytes in the region.
  virtual std::uint64_t FreeBytes() = 0;
};

// Attaches to the region that a server of `release` has created for this stub. `gpu` must outlive the wire.
// Throws std::invalid_argument if this stub was built without that release.
// `journal` is for the process that watches this one, if any.
std::unique_ptr<Wire> OpenWire(const Launch& launch, Release release, GpuMemory& gpu,
                               std::shared_ptr<Journal> journal = MakeJournal());

}  // namespace envpack::abi
