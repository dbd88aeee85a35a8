#include "local/local_wire.h"

#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <list>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/forks.h"
#include "base/output.h"
#include "base/packing.h"
#include "base/threads.h"
#include "local/connection.h"
#include "local/values.h"

namespace envpack::local {

namespace {

// A query of this process that the host has not answered.
struct Waiting {
  explicit Waiting(std::uint64_t query) : id(query) {}

  const std::uint64_t id;
  std::optional<Message> answer;
  std::condition_variable arrived;
};

struct Answer {
  std::shared_ptr<const void> owner;  // of the content
  Unpacker content;
};

class SocketWire final : public LocalWire {
 public:
  SocketWire(int socket, abi::GpuMemory& gpu) : gpu_(gpu), connection_(socket) {
    const std::optional<Message> start = connection_.Receive();
    if (!start || start->kind != Kind::kStart) throw std::runtime_error("envpack has not said what to run");
    Unpacker unpacker(start->bytes);
    unpacker(launch_.model_file, launch_.backend_directory, launch_.name, release_, uses_environment_);
    launch_.runtime_directory = "DEFAULT";
    launch_.server_pid = getppid();
    receiver_ = StartThread("pbstub-local", [this] { Run(); });
  }

  // The thread waits for messages, so it cannot be joined.
  ~SocketWire() override { receiver_.detach(); }

 private:
  const abi::Launch& launch() const override { return launch_; }
  abi::Release ServerRelease() const override { return release_; }
  bool UsesEnvironment() const override { return uses_environment_; }
  bool Decoupled() const override { return decoupled_; }
  bool FailureDeletesFactories() const override { return false; }
  bool LogsAtOnce() const override { return true; }
  bool IsOldStream(abi::StreamId) const override { return false; }
  void EnableReadinessProbes() override { has_readiness_ = true; }

  // Without the host nothing that this process does has an effect.
  void Run() {
    try {
      while (std::optional<Message> message = connection_.Receive()) Sort(*std::move(message));
    } catch (const std::exception& error) {
      Print(error.what());
    }
    {
      const std::lock_guard lock(mutex_);
      if (is_over_) return;
    }
    _exit(1);
  }

  void Sort(Message message) {
    const std::lock_guard lock(mutex_);
    if (message.kind == Kind::kAnswer) {
      for (Waiting& waiting : waiting_) {
        if (waiting.id != message.id) continue;
        waiting.answer = std::move(message);
        return waiting.arrived.notify_one();
      }
      return;
    }
    const bool is_command = message.kind < Kind::kAnswer;
    (is_command ? commands_ : server_messages_).push_back(std::move(message));
    arrived_.notify_all();
  }

  Message TakeFirst(std::list<Message>& messages) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return !messages.empty(); });
    Message message = std::move(messages.front());
    messages.pop_front();
    return message;
  }

  abi::Command Receive() override {
    const Message message = TakeFirst(commands_);
    Unpacker unpacker(message.bytes);
    switch (message.kind) {
      case Kind::kAutoComplete:
        return abi::AutoCompleteCommand{unpacker.Next<std::string>()};
      case Kind::kInitialize: {
        abi::InitializeCommand command;
        unpacker(decoupled_, launch_.name, command.arguments);
        return command;
      }
      case Kind::kExecute:
        return ReadBatch(unpacker, message.owner);
      case Kind::kFinalize:
        return abi::FinalizeCommand{};
      default:
        return abi::UnknownCommand{};
    }
  }

  abi::ExecuteCommand ReadBatch(Unpacker& unpacker, const Owner& owner) {
    abi::ExecuteCommand command;
    const std::lock_guard lock(mutex_);
    batch_.clear();
    for (auto left = unpacker.Next<std::uint64_t>(); left > 0; --left) {
      command.requests.push_back(UnpackRequest(unpacker, owner));
      batch_.push_back({command.requests.back().origin.request, abi::kReleaseAll});
    }
    return command;
  }

  void AnswerAutoComplete(const abi::AutoCompleteAnswer& answer) override {
    const auto* failure = std::get_if<abi::Failure>(&answer);
    Packer packer;
    PackFailure(packer, failure);
    packer(failure != nullptr ? std::string() : std::get<std::string>(answer));
    connection_.Send(Kind::kCompleted, 0, packer);
  }

  void AnswerInitialize(const abi::InitializeAnswer& answer) override {
    Packer packer;
    PackFailure(packer, answer ? &*answer : nullptr);
    packer(has_readiness_);
    connection_.Send(Kind::kInitialized, 0, packer);
  }

  void AnswerFinalize() override {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    connection_.Send(Kind::kFinalized, 0, Packer());
  }

  // For each request whether there is a response, and what becomes of the request.
  void AnswerExecute(const abi::ExecuteAnswer& answer) override {
    const auto* failure = std::get_if<abi::ExecuteFailure>(&answer);
    const auto* responses = std::get_if<std::vector<std::optional<abi::Response>>>(&answer);
    Packer packer;
    PackFailure(packer, failure);
    std::unique_lock lock(mutex_);
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      const bool has_response = responses != nullptr && i < responses->size() && (*responses)[i];
      packer(batch_[i].release_flags, has_response);
      if (has_response) Pack(packer, *(*responses)[i], gpu_);
    }
    lock.unlock();
    connection_.Send(Kind::kExecuted, 0, packer);
  }

  void Log(const abi::LogLine& line) override {
    connection_.Send(Kind::kLog, 0, Packed(line.level, line.message, line.file, line.line));
  }

  void Send(const abi::Origin& origin, const std::optional<abi::Response>& response,
            std::uint32_t flags) override {
    Packer packer = Packed(origin.request, flags, response.has_value());
    if (response) Pack(packer, *response, gpu_);
    Ask(Kind::kSend, packer);
  }

  void DeleteResponseFactory(const abi::Origin& origin) override {
    Ask(Kind::kDeleteFactory, Packed(origin.request));
  }

  bool IsCancelled(const abi::Origin& origin) override {
    return AskFor<bool>(Kind::kIsCancelled, Packed(origin.request));
  }

  void SetReleaseFlags(const abi::Origin& origin, std::uint32_t flags) override {
    const std::lock_guard lock(mutex_);
    for (ReceivedRequest& request : batch_) {
      if (request.address == origin.request) request.release_flags = flags;
    }
  }

  abi::InferResponse Infer(const abi::Request& request, bool decoupled) override {
    Packer packer = Packed(decoupled);
    Pack(packer, request, gpu_);
    Answer answer = Ask(Kind::kInfer, packer);
    return UnpackInferResponse(answer.content, answer.owner);
  }

  void EndStream(abi::StreamId stream) override { Ask(Kind::kEndStream, Packed(stream)); }

  void CancelStream(abi::StreamId stream) override { Ask(Kind::kCancelStream, Packed(stream)); }

  abi::Tensor Allocate(const abi::Tensor& tensor) override {
    const std::shared_ptr<char> bytes(new char[tensor.byte_size], std::default_delete<char[]>());
    abi::Tensor allocated = tensor;
    allocated.data = bytes.get();
    allocated.owner = bytes;
    return allocated;
  }

  abi::ServerAddress CreateMetricFamily(const abi::MetricFamily& family) override {
    return AskFor<abi::ServerAddress>(Kind::kCreateMetricFamily,
                                      Packed(family.name, family.description, family.kind));
  }

  void DeleteMetricFamily(abi::ServerAddress family) override {
    Ask(Kind::kDeleteMetricFamily, Packed(family));
  }

  abi::ServerAddress CreateMetric(abi::ServerAddress family, const abi::Metric& metric) override {
    return AskFor<abi::ServerAddress>(Kind::kCreateMetric,
                                      Packed(family, metric.labels, metric.buckets.has_value(),
                                             metric.buckets.value_or(std::vector<double>())));
  }

  void DeleteMetric(abi::ServerAddress metric) override { Ask(Kind::kDeleteMetric, Packed(metric)); }

  void ChangeMetric(abi::ServerAddress metric, abi::MetricChange change, double value) override {
    Ask(Kind::kChangeMetric, Packed(metric, change, value));
  }

  double MetricValue(abi::ServerAddress metric) override {
    return AskFor<double>(Kind::kMetricValue, Packed(metric));
  }

  void LoadModel(const abi::ModelToLoad& model) override {
    Ask(Kind::kLoadModel, Packed(model.name, model.config, model.files));
  }

  void UnloadModel(const std::string& name, bool unload_dependents) override {
    Ask(Kind::kUnloadModel, Packed(name, unload_dependents));
  }

  bool IsModelReady(const std::string& name, const std::string& version) override {
    return AskFor<bool>(Kind::kIsModelReady, Packed(name, version));
  }

  bool ServeServerMessage(const abi::ServerMessageHandler& handler) override {
    const Message message = TakeFirst(server_messages_);
    if (message.kind == Kind::kReadiness) {
      handler([this, id = message.id](const abi::ReadinessAnswer& answer) {
        const auto* failure = std::get_if<abi::Failure>(&answer);
        Packer packer;
        PackFailure(packer, failure);
        packer(failure == nullptr && std::get<bool>(answer));
        connection_.Send(Kind::kIsReady, id, packer);
      });
    } else {
      Unpacker unpacker(message.bytes);
      handler(UnpackInferResponse(unpacker, message.owner));
    }
    return true;
  }

  // There is no region, so tensors lie in the memory of this process.
  std::uint64_t FreeBytes() override {
    return static_cast<std::uint64_t>(sysconf(_SC_AVPHYS_PAGES)) *
           static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  }

  // Sends a query and waits for the answer. Throws ServerError if that is an error.
  Answer Ask(Kind kind, const Packer& content) {
    if (forks::Depth() > 0) {
      throw abi::ServerError(
          "A process that the model has forked can only reach a server, and this is none.");
    }
    std::unique_lock lock(mutex_);
    const auto waiting = waiting_.emplace(waiting_.end(), ++last_id_);
    lock.unlock();
    connection_.Send(kind, waiting->id, content);
    lock.lock();
    waiting->arrived.wait(lock, [&] { return waiting->answer.has_value(); });
    Message answer = *std::move(waiting->answer);
    waiting_.erase(waiting);
    lock.unlock();
    Unpacker unpacker(answer.bytes);
    if (unpacker.Next<bool>()) throw abi::ServerError(unpacker.Next<std::string>());
    return {std::move(answer.owner), unpacker};
  }

  template <typename Value>
  Value AskFor(Kind kind, const Packer& content) {
    return Ask(kind, content).content.Next<Value>();
  }

  struct ReceivedRequest {
    std::int64_t address;
    std::uint32_t release_flags;
  };

  abi::GpuMemory& gpu_;
  Connection connection_;
  abi::Launch launch_;
  abi::Release release_ = 0;
  bool uses_environment_ = false;
  bool decoupled_ = false;
  bool has_readiness_ = false;

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::list<Message> commands_;
  std::list<Message> server_messages_;
  std::list<Waiting> waiting_;
  std::vector<ReceivedRequest> batch_;  // of the command last received
  std::uint64_t last_id_ = 0;
  bool is_over_ = false;  // the host knows that the model is finalized

  std::thread receiver_;
};

}  // namespace

std::unique_ptr<LocalWire> OpenLocalWire(int socket, abi::GpuMemory& gpu) {
  return std::make_unique<SocketWire>(socket, gpu);
}

}  // namespace envpack::local
