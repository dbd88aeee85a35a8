// The part of the wire that differs between epochs. Defined in epoch.cc, which is compiled once for each
// epoch.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "abi/base_wire.h"
#include "abi/epoch_reader.h"
#include "abi/epoch_writer.h"
#include "abi/gpu_memory.h"
#include "abi/records.h"
#include "abi/traits.h"
#include "abi/wire.h"
#include "shm/queue.h"

namespace envpack::abi {

template <Release kEpoch>
class EpochWire final : public BaseWire {
 public:
  EpochWire(const Launch& launch, Release release, GpuMemory& gpu, std::shared_ptr<Journal> journal)
      : BaseWire(launch, release, gpu, std::move(journal)),
        server_messages_(region_, control().parent_to_stub_mq, journal_->mark(QueueId::kServerMessages)),
        released_(region_, control().memory_manager_message_queue, journal_->mark(QueueId::kReleased)),
        epoch_reader_(region_, gpu, released_, journal_->device_buffers) {}

  void AnswerExecute(const ExecuteAnswer& answer) override;
  bool FailureDeletesFactories() const override { return !StubDeletesFactories(kEpoch); }
  void Send(const Origin& origin, const std::optional<Response>& response, std::uint32_t flags) override;
  void SetReleaseFlags(const Origin& origin, std::uint32_t flags) override;
  Tensor Allocate(const Tensor& tensor) override { return EpochWriter<kEpoch>::Allocate(region_, tensor); }
  InferResponse Infer(const Request& request, bool decoupled) override;
  ServerAddress CreateMetric(ServerAddress family, const Metric& metric) override;
  void DeleteMetric(ServerAddress metric) override;
  void ChangeMetric(ServerAddress metric, MetricChange change, double value) override;
  double MetricValue(ServerAddress metric) override;
  bool ServeServerMessage(const ServerMessageHandler& handler) override;

 private:
  using BatchRecord = records::ResponseBatch<kEpoch>;

  Command ReceiveOther(CommandKind kind, const records::Message& message) override;

  // Answers to batches.
  BatchRecord MakeBatch(Writer& writer, const ExecuteFailure& failure) const;
  void SendAll(const std::vector<std::optional<Response>>& responses);
  void NoteAnswered(const ExecuteAnswer& answer);

  // BLS requests and metrics.
  shm::Queue& request_queue() { return HasRequestQueue(kEpoch) ? to_server_ : answers_; }
  void ServeMessage(const shm::Block& block, const ServerMessageHandler& handler);
  InferResponse TakeInferResponse(Handle answer);
  InferResponse TakeStreamResponse(const records::Message& message);
  records::CustomMetrics ExchangeMetric(CommandKind kind, const records::Metric<kEpoch>& record,
                                        const Metric& metric);

  // Tensors on GPUs.
  std::vector<Handle> ReadBuffers(Handle buffers);
  std::vector<Handle> ReadBatchBuffers(const records::RequestBatch<kEpoch>& batch);
  void FillBuffers(const std::vector<Handle>& buffers, const std::vector<Tensor>& tensors);
  void LoadGpuBuffers(Handle buffers);

  shm::Queue server_messages_;
  shm::Queue released_;
  EpochReader<kEpoch> epoch_reader_;
  std::vector<Origin> origins_;                 // of the current batch, if responses are sent one by one
  std::vector<Tensor> pending_device_tensors_;  // of the last answer; the server requests their bytes next
};

// Defined for each epoch that the stub is built with.
template <Release kEpoch>
std::unique_ptr<Wire> OpenEpoch(const Launch& launch, Release release, GpuMemory& gpu,
                                std::shared_ptr<Journal> journal);

}  // namespace envpack::abi
