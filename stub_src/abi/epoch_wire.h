// The conversation of one epoch: what differs between them. Definitions are in the files that epoch.cc.in
// lists, one for each part of the conversation.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "abi/common_wire.h"
#include "abi/gpu_memory.h"
#include "abi/reader.h"
#include "abi/records.h"
#include "abi/traits.h"
#include "abi/wire.h"
#include "abi/writer.h"
#include "shm/queue.h"

namespace envpack::abi {

template <Release kEpoch>
class EpochWire final : public CommonWire {
 public:
  EpochWire(const Launch& launch, Release release, GpuMemory& gpu)
      : CommonWire(launch, release),
        gpu_(gpu),
        unasked_(region_, control().parent_to_stub_mq),
        released_(region_, control().memory_manager_message_queue),
        reader_(region_, gpu, released_) {}

  void AnswerExecute(const ExecuteAnswer& answer) override;
  bool FailureDeletesFactories() const override { return !T::kStubDeletesFactories; }
  void Send(const Origin& origin, const std::optional<Response>& response, std::uint32_t flags) override;
  void DropResponseFactory(const Origin& origin) override;
  void SetReleaseFlags(const Origin& origin, std::uint32_t flags) override;
  Tensor Allocate(const Tensor& tensor) override { return Writer<kEpoch>::Allocate(region_, tensor); }
  InferResponse Infer(const Request& request, bool decoupled) override;
  ServerAddress CreateMetric(ServerAddress family, const Metric& metric) override;
  void DeleteMetric(ServerAddress metric) override;
  void ChangeMetric(ServerAddress metric, MetricChange change, double value) override;
  double MetricValue(ServerAddress metric) override;
  bool ServeUnasked(UnaskedListener& listener) override;

 private:
  using T = Traits<kEpoch>;
  using BatchRecord = records::ResponseBatch<kEpoch>;

  Command ReceiveOther(CommandKind kind, const records::Message& message) override;

  // Answers.
  BatchRecord MakeBatch(PlainWriter& writer, const ExecuteFailure& failure) const;
  void AnswerInOneBlock(Writer<kEpoch>& writer, const BatchRecord& batch,
                        const std::vector<Handle>& responses);
  void AnswerInTwoBlocks(Writer<kEpoch>& writer, const BatchRecord& batch,
                         const std::vector<Handle>& responses);
  void SendAll(const std::vector<std::optional<Response>>& responses);

  // The model's own requests, and metrics.
  shm::Queue& own_requests() { return T::kAsksOnItsOwnQueue ? to_server_ : answers_; }
  InferResponse TakeInferResponse(Handle answer);
  InferResponse TakeStreamResponse(const records::Message& message);
  records::CustomMetrics AskMetric(CommandKind kind, const records::Metric<kEpoch>& record,
                                   const Metric& metric);

  // Tensors on GPUs.
  void AttachPool(const records::Message& message);
  std::vector<Handle> ReadBuffers(Handle buffers);
  std::vector<Handle> ReadBatchBuffers(const records::RequestBatch<kEpoch>& batch);
  void FillBuffers(const std::vector<Handle>& buffers, const std::vector<Tensor>& tensors);
  void LoadGpuBuffers(Handle buffers);

  GpuMemory& gpu_;
  shm::Queue unasked_;
  shm::Queue released_;
  Reader<kEpoch> reader_;
  std::vector<Origin> origins_;  // of the batch being dealt with, where answers are sent one by one
  std::vector<Tensor> awaited_;  // GPU tensors of the last answer, whose bytes the server asks for next
};

}  // namespace envpack::abi
