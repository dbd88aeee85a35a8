// The conversation with the server, in values.
//
// A Wire is the only thing that knows records, command numbers, queues and the order of an exchange. There is
// one implementation for each protocol epoch; everything else in the stub is the same for all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>

#include "abi/features.h"
#include "abi/gpu_memory.h"
#include "abi/launch.h"
#include "abi/release.h"
#include "abi/values.h"

namespace envpack::abi {

// The server has done its part of an exchange and reports that it failed.
class ServerFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Whether the model is ready, or why it cannot say so.
using ReadinessAnswer = std::variant<bool, Failure>;

// The server asks whether the model is ready. It waits some seconds for the answer, which any thread may
// give, once.
class ReadinessQuestion {
 public:
  virtual ~ReadinessQuestion() = default;
  virtual void Answer(const ReadinessAnswer& answer) = 0;
};

// Takes what the server sends on its own initiative. Neither function may take long.
class UnaskedListener {
 public:
  virtual ~UnaskedListener() = default;
  virtual void Take(InferResponse response) = 0;
  virtual void Take(std::unique_ptr<ReadinessQuestion> question) = 0;
};

// What every stub must do so that the server does not wait for it, whether or not it can run a model.
//
// All functions may block until the server reacts, so none may be called with the GIL held. They throw
// shm::CorruptRegion when the peer is not what it should be, shm::RegionFull when /dev/shm is full.
class Attendance {
 public:
  virtual ~Attendance() = default;

  // Tells the server that the stub lives. It waits for this, without a limit until 25.07, before it does
  // anything else.
  virtual void Announce() = 0;

  // Shows the server that the stub still lives; to be called about every 300 ms. Takes no lock but the
  // record's own.
  virtual void Beat() = 0;

  // Waits for the next command. Main thread only, like the answers.
  virtual Command Receive() = 0;

  // Each answers the command last received and returns when the server has read all of it.
  virtual void AnswerAutoComplete(const AutoCompleteAnswer& answer) = 0;
  virtual void AnswerInitialize(const InitializeAnswer& answer) = 0;
  virtual void AnswerFinalize() = 0;

  // Removes the region's name, for when the server who owns it has died.
  virtual void Abandon() noexcept = 0;
};

// All that a stub can say to the server. The same rules hold.
class Wire : public Attendance {
 public:
  // The server's. What it has not, a model cannot use.
  virtual Release ServerRelease() const = 0;
  bool Has(Feature feature) const { return ServerRelease() >= Since(feature); }

  // Whether the model has an execution environment, and whether it is decoupled. Fixed for the life of a
  // stub.
  virtual bool UsesEnvironment() const = 0;
  virtual bool Decoupled() const = 0;

  // Answers the command last received, like the answers above.
  virtual void AnswerExecute(const ExecuteAnswer& answer) = 0;

  // Whether the server deletes the response factories of a batch whose answer is a failure.
  virtual bool FailureDeletesFactories() const = 0;

  // Puts a line into the server's log. Any thread; only in a stub that was asked to initialise, since the
  // server has no reader for it otherwise.
  virtual void Log(const LogLine& line) = 0;

  // Sends a response, or only flags, for a request that the server is waiting for; with kResponseFinal the
  // server deletes the request's response factory. Any thread. Throws ServerFailed.
  virtual void Send(const Origin& origin, const std::optional<Response>& response, std::uint32_t flags) = 0;

  // Has the server delete the response factory of a request that nobody will answer any more. Any thread.
  virtual void DropResponseFactory(const Origin& origin) = 0;

  // Whether the client has cancelled a request that has not been answered finally. Any thread.
  virtual bool IsCancelled(const Origin& origin) = 0;

  // What is to happen to a request when execute() has returned: kReleaseAll or kReleaseReschedule. Does not
  // block.
  virtual void SetReleaseFlags(const Origin& origin, std::uint32_t flags) = 0;

  // Has the server run a request that the model has made ("BLS"), and waits for the first response. With
  // `decoupled` the model asked may give any number of them: if the first is not the last, the others come
  // through ServeUnasked(). Any thread. Throws ServerFailed if the server could not run it.
  virtual InferResponse Infer(const Request& request, bool decoupled) = 0;

  // Lets the server forget a stream whose last response has come. Any thread.
  virtual void EndStream(StreamId stream) = 0;

  // Asks the server to cancel the request that a stream answers. Any thread.
  virtual void CancelStream(StreamId stream) = 0;

  // A tensor in the region itself, whose bytes may be written through `data` until it is sent; sending it
  // copies nothing. Any thread, at any time. `tensor` has no bytes yet.
  virtual Tensor Allocate(const Tensor& tensor) = 0;

  // Custom metrics, and control of other models. Any thread, from the time that Log() may be used. Each waits
  // for the server, for the load of a model as long as that takes, and throws ServerFailed.
  virtual ServerAddress CreateMetricFamily(const MetricFamily& family) = 0;
  virtual void DeleteMetricFamily(ServerAddress family) = 0;
  virtual ServerAddress CreateMetric(ServerAddress family, const Metric& metric) = 0;
  virtual void DeleteMetric(ServerAddress metric) = 0;
  virtual void ChangeMetric(ServerAddress metric, MetricChange change, double value) = 0;
  virtual double MetricValue(ServerAddress metric) = 0;
  virtual void LoadModel(const ModelToLoad& model) = 0;
  virtual void UnloadModel(const std::string& name, bool unload_dependents) = 0;
  virtual bool IsModelReady(const std::string& name, const std::string& version) = 0;

  // Waits for one message that the server sends on its own initiative, and deals with it or hands it to
  // `listener`. One thread only, which must be running before the model is initialised. False when there will
  // be no more.
  virtual bool ServeUnasked(UnaskedListener& listener) = 0;

  // Tells the server that it may ask whether the model is ready. To be called before initialize is answered.
  virtual void OfferReadiness() = 0;

  // Bytes free in the region right now.
  virtual std::uint64_t FreeBytes() = 0;
};

// Attaches to the region that a server of that release has made for this stub. `gpu` must outlive the wire.
// Throws std::invalid_argument if this stub was built without that release.
std::unique_ptr<Wire> OpenWire(const Launch& launch, Release release, GpuMemory& gpu);

// The same for a stub that will run no model.
std::unique_ptr<Attendance> OpenAttendance(const Launch& launch, Release release);

}  // namespace envpack::abi
