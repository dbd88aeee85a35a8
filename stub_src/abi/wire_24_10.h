// The Wire of Triton 24.10.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "abi/attempt.h"
#include "abi/gpu_memory.h"
#include "abi/launch.h"
#include "abi/reader_24_10.h"
#include "abi/records_24_10.h"
#include "abi/wire.h"
#include "abi/writer_24_10.h"
#include "shm/queue.h"
#include "shm/region.h"

namespace envpack::abi::r24_10 {

class Wire24_10 final : public Wire {
 public:
  Wire24_10(const Launch& launch, GpuMemory& gpu)
      : gpu_(gpu),
        region_(launch.region, launch.region_growth),
        control_(region_.Load(launch.control_handle)),
        commands_(region_, control_.As<Control>()->stub_message_queue),
        answers_(region_, control_.As<Control>()->parent_message_queue),
        to_server_(region_, control_.As<Control>()->stub_to_parent_mq),
        unasked_(region_, control_.As<Control>()->parent_to_stub_mq),
        released_(region_, control_.As<Control>()->memory_manager_message_queue),
        reader_(region_, gpu, released_) {}

  bool UsesEnvironment() const override { return control_.As<Control>()->uses_env; }
  bool Decoupled() const override { return control_.As<Control>()->decoupled; }
  void Announce() override;
  void Beat() override;
  std::uint64_t FreeBytes() override { return region_.FreeBytes(); }
  void Abandon() noexcept override { region_.Unlink(); }

  Command Receive() override;
  void AnswerAutoComplete(const AutoCompleteAnswer& answer) override;
  void AnswerInitialize(const InitializeAnswer& answer) override;
  void AnswerExecute(const ExecuteAnswer& answer) override;
  void AnswerFinalize() override;
  void Log(const LogLine& line) override;
  void Send(const Origin& origin, const std::optional<abi::Response>& response, std::uint32_t flags) override;
  void DropResponseFactory(const Origin& origin) override;
  bool IsCancelled(const Origin& origin) override;
  void SetReleaseFlags(const Origin& origin, std::uint32_t flags) override;
  abi::Tensor Allocate(const abi::Tensor& tensor) override;
  InferResponse Infer(const abi::Request& request, bool decoupled) override;
  void EndStream(StreamId stream) override;
  ServerAddress CreateMetricFamily(const abi::MetricFamily& family) override;
  void DeleteMetricFamily(ServerAddress family) override;
  ServerAddress CreateMetric(ServerAddress family, const abi::Metric& metric) override;
  void DeleteMetric(ServerAddress metric) override;
  void ChangeMetric(ServerAddress metric, MetricChange change, double value) override;
  double MetricValue(ServerAddress metric) override;
  void LoadModel(const ModelToLoad& model) override;
  void UnloadModel(const std::string& name, bool unload_dependents) override;
  bool IsModelReady(const std::string& name, const std::string& version) override;
  bool ServeUnasked(const std::function<void(InferResponse)>& deliver) override;

 private:
  // A message that the receiver answers by way of a mutex and a condition that lie beside it.
  struct Call {
    Handle message;
    pthread_mutex_t* mutex;
    pthread_cond_t* condition;
  };

  void Answer(Writer& writer, CommandNumber number, Handle args);
  void AnswerWith(const shm::Block& message);
  static void FillMessage(Message* message, CommandNumber number, Handle args);
  template <typename Record, typename Finish>
  void Exchange(Writer& writer, CommandNumber number, const shm::Block& block, Finish finish);
  // What the server says went wrong. Must be called before the record is given back, since the server frees
  // the text.
  std::string ErrorText(bool is_set, Handle text, const char* otherwise = "the server does not say why");
  CustomMetrics AskMetrics(Writer& writer, CommandNumber number, Handle message);
  CustomMetrics AskMetric(CommandNumber number, const Metric& record, const abi::Metric& metric);
  bool AskModels(CommandNumber number, const ModelToLoad& model, const std::string& version,
                 bool unload_dependents);
  Call MakeCall(Writer& writer, CommandNumber number, Handle args);
  void SendCleanup(CommandNumber number, std::int64_t id);
  InferResponse TakeInferResponse(Handle answer);
  void AttachPool(const Message& message);
  InferResponse TakeStreamResponse(const Message& message);
  // Copies GPU tensors to where the server wants them. Throws ServerFailed or GpuFailed.
  void FillBuffers(Handle buffers, const std::vector<abi::Tensor>& tensors);
  void LoadGpuBuffers(Handle buffers);

  GpuMemory& gpu_;
  shm::Region region_;
  shm::Block control_;
  shm::Queue commands_;
  shm::Queue answers_;
  shm::Queue to_server_;
  shm::Queue unasked_;
  shm::Queue released_;
  Reader reader_;
  shm::Block current_;                // the command being dealt with; Finalize is answered in the same block
  std::vector<abi::Tensor> awaited_;  // GPU tensors of the last answer, whose bytes the server asks for next
};

std::unique_ptr<Wire> OpenWire(const Launch& launch, GpuMemory& gpu);

}  // namespace envpack::abi::r24_10
