// A wire without a server: envpack, the *host*, does what a server would, at the other end of a socket.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "abi/gpu_memory.h"
#include "abi/wire.h"
#include "base/packing.h"
#include "local/connection.h"

namespace envpack::local {

// One thread receives all messages, from the constructor on. If the host disappears, it ends this process.
class LocalWire final : public abi::Wire {
 public:
  // Waits for the host's first message. Throws std::runtime_error if it is another one.
  LocalWire(int socket, abi::GpuMemory& gpu);
  ~LocalWire() override;

  const abi::Launch& launch() const { return launch_; }

  void Announce() override {}
  void Beat(bool) override {}
  abi::Command Receive() override;
  void AnswerAutoComplete(const abi::AutoCompleteAnswer& answer) override;
  void AnswerInitialize(const abi::InitializeAnswer& answer) override;
  void AnswerFinalize() override;
  void UnlinkRegion() noexcept override {}

  abi::Release ServerRelease() const override { return release_; }
  bool UsesEnvironment() const override { return uses_environment_; }
  bool Decoupled() const override { return decoupled_; }
  void AnswerExecute(const abi::ExecuteAnswer& answer) override;
  bool FailureDeletesFactories() const override { return false; }
  void Log(const abi::LogLine& line) override;
  bool LogsAtOnce() const override { return true; }
  void Send(const abi::Origin& origin, const std::optional<abi::Response>& response,
            std::uint32_t flags) override;
  void DeleteResponseFactory(const abi::Origin& origin) override;
  bool IsCancelled(const abi::Origin& origin) override;
  void SetReleaseFlags(const abi::Origin& origin, std::uint32_t flags) override;
  abi::InferResponse Infer(const abi::Request& request, bool decoupled) override;
  bool IsOldStream(abi::StreamId) const override { return false; }
  void EndStream(abi::StreamId stream) override;
  void CancelStream(abi::StreamId stream) override;
  abi::Tensor Allocate(const abi::Tensor& tensor) override;
  abi::ServerAddress CreateMetricFamily(const abi::MetricFamily& family) override;
  void DeleteMetricFamily(abi::ServerAddress family) override;
  abi::ServerAddress CreateMetric(abi::ServerAddress family, const abi::Metric& metric) override;
  void DeleteMetric(abi::ServerAddress metric) override;
  void ChangeMetric(abi::ServerAddress metric, abi::MetricChange change, double value) override;
  double MetricValue(abi::ServerAddress metric) override;
  void LoadModel(const abi::ModelToLoad& model) override;
  void UnloadModel(const std::string& name, bool unload_dependents) override;
  bool IsModelReady(const std::string& name, const std::string& version) override;
  bool ServeServerMessage(const abi::ServerMessageHandler& handler) override;
  void EnableReadinessProbes() override { has_readiness_ = true; }
  std::uint64_t FreeBytes() override;

 private:
  struct ReceivedRequest {
    std::int64_t address;
    std::uint32_t release_flags;
  };

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

  void Run();
  void Sort(Message message);
  abi::Command ReadCommand(const Message& message);
  abi::Command ReadInitialize(Unpacker& unpacker);
  abi::ServerMessage ReadServerMessage(const Message& message);
  // Sends a query and waits for the answer. Throws ServerError if that is an error.
  Answer Ask(Kind kind, const Packer& content);
  template <typename Value>
  Value AskFor(Kind kind, const Packer& content) {
    return Ask(kind, content).content.Next<Value>();
  }

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
  bool is_over_ = false;  // the host has been told that the model is finalized

  std::thread receiver_;
};

}  // namespace envpack::local
