// The wire of one epoch. Compiled once for each epoch that the stub is built with; -DEPOCH is its number.

#include <pthread.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "abi/base_wire.h"
#include "abi/epoch_reader.h"
#include "abi/epoch_writer.h"
#include "abi/traits.h"
#include "base/output.h"
#include "shm/sync.h"

namespace envpack::abi {

namespace {

// The part of the wire that differs between epochs.
template <Release kEpoch>
class EpochWire final : public BaseWire {
 public:
  EpochWire(const Launch& launch, Release release, GpuMemory& gpu, std::shared_ptr<Journal> journal)
      : BaseWire(launch, release, gpu, std::move(journal)),
        server_messages_(region_, control().parent_to_stub_mq, journal_->mark(QueueId::kServerMessages)),
        released_(region_, control().memory_manager_message_queue, journal_->mark(QueueId::kReleased)),
        epoch_reader_(region_, gpu, released_, journal_->device_buffers) {}

 private:
  using BatchRecord = records::ResponseBatch<kEpoch>;

  Command ReceiveOther(CommandKind kind, const records::Message& message) override {
    if (kind == CommandKind::kLoadGpuBuffers) {
      const shm::RegionPause pause;
      LoadGpuBuffers(message.args);
      return Receive();
    }
    if (kind != CommandKind::kExecuteRequest) return UnknownCommand{};
    ExecuteCommand command{epoch_reader_.ReadRequests(message.args)};
    journal_->ListRequests(command.requests);
    if constexpr (AnswersBySender(kEpoch)) {
      origins_.clear();
      for (const Request& request : command.requests) origins_.push_back(request.origin);
    }
    return command;
  }

  BatchRecord MakeBatch(Writer& writer, const ExecuteFailure& failure) const {
    BatchRecord batch{};
    batch.has_error = batch.is_error_set = true;
    batch.error = writer.WriteString(failure.text);
    if constexpr (AnswersInOneBlock(kEpoch)) batch.is_response_factory_deleted = failure.factories_deleted;
    return batch;
  }

  void AnswerExecute(const ExecuteAnswer& answer) override {
    const auto* failure = std::get_if<ExecuteFailure>(&answer);
    if constexpr (AnswersBySender(kEpoch)) {
      if (failure == nullptr) SendAll(std::get<std::vector<std::optional<Response>>>(answer));
    }
    EpochWriter<kEpoch> writer(region_);
    BatchRecord batch{};
    std::vector<Handle> responses;
    if (failure != nullptr) {
      batch = MakeBatch(writer, *failure);
    } else if constexpr (!AnswersBySender(kEpoch)) {
      for (const auto& response : std::get<std::vector<std::optional<Response>>>(answer)) {
        responses.push_back(response ? writer.WriteResponse(*response) : 0);
      }
    }
    NoteAnswered(answer);
    batch.batch_size = static_cast<std::uint32_t>(responses.size());
    if constexpr (AnswersInOneBlock(kEpoch)) {
      // The server reads the batch record from directly after the message, and ignores `args`.
      struct Whole {
        records::Message message;
        BatchRecord batch;
      };
      const shm::Block& block =
          writer.PutWith(Whole{MakeMessage(CommandKind::kExecuteResponse, 0), batch}, responses);
      block.As<records::Message>()->args = block.handle() + static_cast<Handle>(offsetof(Whole, batch));
      AnswerWith(writer, block);
    } else {
      Answer(writer, CommandKind::kExecuteResponse, writer.PutWith(batch, responses).handle());
    }
    origins_.clear();
    pending_device_tensors_ = writer.device_tensors();
    if (!pending_device_tensors_.empty()) ++journal_->device_buffers;
  }

  // Which requests of the batch end with its answer.
  void NoteAnswered(const ExecuteAnswer& answer) {
    const auto* responses = std::get_if<std::vector<std::optional<Response>>>(&answer);
    for (std::uint32_t i = 0; i < journal_->used_requests; ++i) {
      OpenRequest& request = journal_->requests[i];
      if (request.is_current == 0 || request.state != OpenRequest::kOpen) continue;
      if (responses == nullptr) {
        const bool deletes = StubDeletesFactories(kEpoch) && request.response_factory != 0;
        request.state = deletes ? OpenRequest::kFailing : OpenRequest::kInAnswer;
      } else if (request.is_rescheduled != 0 ||
                 (request.position < responses->size() && (*responses)[request.position])) {
        request.state = OpenRequest::kInAnswer;
      }
    }
  }

  // Sends each response like one of a response sender; the answer contains none. After the first, the batch
  // can no longer fail as a whole, so each request gets its own error.
  void SendAll(const std::vector<std::optional<Response>>& responses) {
    for (std::size_t i = 0; i < responses.size() && i < origins_.size(); ++i) {
      if (!responses[i]) continue;
      try {
        Send(origins_[i], responses[i], kResponseFinal);
      } catch (const RegionFull& error) {
        Send(origins_[i], Response{{}, Error{error.what()}, ""}, kResponseFinal);
      } catch (const ServerError& error) {
        Print("cannot send a response", error.what());
      }
    }
  }

  // Both sides take turns: the server sends the response, reports the result, and waits until the stub has
  // read it. Before that, for tensors on a GPU, the server sends the destination buffers.
  void Send(const Origin& origin, const std::optional<Response>& response, std::uint32_t flags) override {
    EpochWriter<kEpoch> writer(region_);
    records::ResponseSend<kEpoch> record{};
    record.request_address = origin.request;
    record.response_factory_address = origin.response_factory;
    record.response = response ? writer.WriteResponse(*response) : 0;
    record.flags = flags;
    const shm::Block& block = writer.Make(sizeof(record), shm::kRecordAlignment);
    auto* shared = Share(block, record);
    const shm::Block& message = writer.Put(MakeMessage(CommandKind::kResponseSend, block.handle()));

    const Handle handle = message.handle();
    writer.Finish();

    std::optional<Failure> failure;
    const bool on_device = !writer.device_tensors().empty();
    const std::int64_t final_of = (flags & kResponseFinal) != 0 ? origin.request : 0;
    NotedExchange noted(*journal_, on_device ? Exchange::kImpossible : Exchange::kTurns,
                        {handle, block.handle(), 0, 0, final_of});
    request_queue().Push(handle, noted.pushed());
    {
      shm::Lock lock(&shared->mutex);
      const auto wait = [&] {
        while (!shared->is_stub_turn) lock.Wait(&shared->condition);
      };
      wait();
      if (on_device && !shared->has_error) {
        failure = Attempt([&] { FillBuffers(ReadBuffers(shared->gpu_buffers), writer.device_tensors()); });
        shared->is_stub_turn = false;
        shm::Notify(&shared->condition);
        wait();
      }
      if (shared->has_error) {
        failure = Failure{reader_.ErrorText(shared->is_error_set, shared->error,
                                            "An error occurred while sending a response.")};
      } else if ((flags & kResponseFinal) != 0) {
        journal_->Finish(origin.request, StubDeletesFactories(kEpoch));
      }
      noted->is_read = 1;
      shared->is_stub_turn = false;
    }
    shm::Notify(&shared->condition);
    if (StubDeletesFactories(kEpoch) && flags == kResponseFinal && origin.response_factory != 0) {
      DeleteResponseFactory(origin);
    }
    if (failure) throw ServerError(failure->text);
  }

  void SetReleaseFlags(const Origin& origin, [[maybe_unused]] std::uint32_t flags) override {
    if constexpr (HasReleaseFlags(kEpoch)) {
      static_cast<const shm::Block*>(origin.record.get())->As<records::Request<kEpoch>>()->release_flags =
          flags;
      if (OpenRequest* open = journal_->Find(origin.request)) {
        open->is_rescheduled = (flags & kReleaseReschedule) != 0;
      }
    }
  }

  // No flag reports that the answer is complete; the server only notifies the condition. It sets
  // `response_handle` before it starts, so a wake-up without that is spurious. For tensors on a GPU it
  // notifies once before the answer, with destination buffers.
  InferResponse Infer(const Request& request, bool decoupled) override {
    using Batch = records::RequestBatch<kEpoch>;
    const shm::ReleaseTogether together;
    EpochWriter<kEpoch> writer(region_);
    const Handle handle = writer.WriteRequest(request, decoupled);
    const shm::Block& block = writer.Make(sizeof(Batch) + sizeof(Handle));
    auto* batch = block.As<Batch>();
    *batch = Batch{};
    batch->batch_size = 1;
    *block.As<Handle>(sizeof(Batch)) = handle;
    const Call call =
        MakeCall(writer, decoupled ? CommandKind::kInferStreamExecRequest : CommandKind::kInferExecRequest,
                 block.handle());
    const shm::Block message = region_.Load(call.message);
    const auto* answer = message.As<records::Message>();
    const bool on_device = !writer.device_tensors().empty();
    writer.Finish();

    const forks::Undisturbed undisturbed;
    const auto kind = on_device   ? Exchange::kImpossible
                      : decoupled ? Exchange::kStream
                                  : Exchange::kInference;
    NotedExchange noted(*journal_, kind,
                        {call.message, block.handle(), call.mutex_block, call.condition_block});
    shm::Lock lock(call.mutex);
    request_queue().Push(call.message, noted.pushed());
    do {
      ++noted->waits;
      lock.Wait(call.condition);
    } while (answer->response_handle == 0);
    noted->is_read = 1;
    std::optional<Failure> failure;
    if (batch->gpu_buffers != 0) {
      failure = Attempt([&] { FillBuffers(ReadBatchBuffers(*batch), writer.device_tensors()); });
      shm::Notify(call.condition);
      ++noted->waits;
      lock.Wait(call.condition);
    }
    // Also after an exception.
    const std::unique_ptr<pthread_cond_t, void (*)(pthread_cond_t*)> release(call.condition, &shm::Notify);
    if (failure) throw ServerError(failure->text);
    InferResponse response = TakeInferResponse(answer->response_handle);
    if (decoupled) journal_->OpenStream(response.stream);
    return response;
  }

  // Reads the answer from the message that the server has created for it.
  InferResponse TakeInferResponse(Handle answer) {
    const shm::RegionLock lock(region_);
    const shm::Block message = region_.Load(answer);
    const shm::Block block = region_.Load(message.As<records::Message>()->args);
    const auto* batch = block.As<BatchRecord>();
    if (batch->has_error) {
      throw ServerError(reader_.ErrorText(batch->is_error_set, batch->error,
                                          "An error occurred while performing BLS request."));
    }
    return epoch_reader_.ReadInferResponse(*block.As<Handle>(sizeof(BatchRecord)));
  }

  // The server's response callback waits until the response has been read.
  InferResponse TakeStreamResponse(const records::Message& message) {
    std::optional<shm::RegionLock> reading(region_);
    const shm::Block block = region_.Load(message.args);
    auto* batch = block.As<BatchRecord>();
    const shm::Block mutex = region_.Load(message.response_mutex);
    const shm::Block condition = region_.Load(message.response_cond);
    InferResponse response;
    const auto failure = Attempt([&] {
      if (batch->has_error) throw ServerError(reader_.ErrorText(batch->is_error_set, batch->error));
      response = epoch_reader_.ReadInferResponse(*block.As<Handle>(sizeof(BatchRecord)));
    });
    if (failure) response.response.error = Error{failure->text};
    reading.reset();
    shm::Lock lock(mutex.As<pthread_mutex_t>());
    batch->waiting_on_stub = true;
    shm::Notify(condition.As<pthread_cond_t>());
    if constexpr (StreamsAreAcknowledgedTwice(kEpoch)) {
      while (batch->waiting_on_stub) lock.Wait(condition.As<pthread_cond_t>());
    }
    journal_->server_message = kNothing;  // while this function keeps the blocks
    return response;
  }

  bool ServeServerMessage(const ServerMessageHandler& handler) override {
    const Handle handle = server_messages_.Pop(&journal_->server_message);
    if (handle == records::kDummy) return false;
    const shm::ReleaseTogether together;
    if (const auto failure = Attempt([&] { ServeMessage(region_.Load(handle), handler); })) {
      Print("cannot process a message of the server", failure->text);
    }
    journal_->server_message = kNothing;
    return true;
  }

  void ServeMessage(const shm::Block& block, const ServerMessageHandler& handler) {
    const records::Message message = *block.As<records::Message>();
    const CommandKind kind = StreamMessagesHaveCommands(kEpoch) ? numbers_.KindOf(message.command)
                                                                : CommandKind::kInferStreamExecResponse;
    if (kind == CommandKind::kCudaPoolInitializeRequest) {
      AttachPool(message);
    } else if (kind == CommandKind::kInferStreamExecResponse) {
      handler(TakeStreamResponse(message));
    } else if (kind == CommandKind::kUserModelReadinessRequest) {
      handler(ReadProbe(message));
    }
  }

  records::CustomMetrics ExchangeMetric(CommandKind kind, ServerAddress family, ServerAddress metric,
                                        double operand = 0, const Metric& facts = {}) {
    EpochWriter<kEpoch> writer(region_);
    records::Metric<kEpoch> record{};
    record.metric_family_address = family;
    record.metric_address = metric;
    record.operation_value = operand;
    record.labels = writer.WriteString(facts.labels);
    if constexpr (MetricsHaveBuckets(kEpoch)) {
      // The server reads the block of every histogram, also one of 0 bytes, and does not check the handle.
      record.buckets = facts.buckets ? writer.WriteDoubles(*facts.buckets) : 0;
    }
    const Handle handle = writer.Put(record).handle();
    return ExchangeMetrics(writer, kind, handle);
  }

  ServerAddress CreateMetric(ServerAddress family, const Metric& metric) override {
    return ExchangeMetric(CommandKind::kMetricRequestNew, family, 0, 0, metric).address;
  }

  void DeleteMetric(ServerAddress metric) override {
    ExchangeMetric(CommandKind::kMetricRequestDelete, 0, metric);
  }

  void ChangeMetric(ServerAddress metric, MetricChange change, double value) override {
    const CommandKind kind = change == MetricChange::kIncrement ? CommandKind::kMetricRequestIncrement
                             : change == MetricChange::kSet     ? CommandKind::kMetricRequestSet
                                                                : CommandKind::kMetricRequestObserve;
    ExchangeMetric(kind, 0, metric, value);
  }

  double MetricValue(ServerAddress metric) override {
    return ExchangeMetric(CommandKind::kMetricRequestValue, 0, metric).value;
  }

  // Handles of the Memory records of the destinations. Throws ServerError.
  std::vector<Handle> ReadBuffers(Handle buffers) {
    const shm::Block block = region_.Load(buffers);
    if constexpr (HasBufferRecord(kEpoch)) {
      const auto record = *block.As<records::GpuBuffers>();
      if (!record.success) {
        throw ServerError("Failed to load GPU buffers: " + epoch_reader_.ReadString(record.error));
      }
      return EpochReader<kEpoch>::ReadHandles(region_.Load(record.buffers), 0, record.buffer_count);
    } else {
      return EpochReader<kEpoch>::ReadHandles(block, sizeof(std::uint64_t), *block.As<std::uint64_t>());
    }
  }

  // The same for a BLS request.
  std::vector<Handle> ReadBatchBuffers(const records::RequestBatch<kEpoch>& batch) {
    if constexpr (HasBufferRecord(kEpoch)) {
      return ReadBuffers(batch.gpu_buffers);
    } else {
      return EpochReader<kEpoch>::ReadHandles(region_.Load(batch.gpu_buffers), 0, batch.gpu_buffers_count);
    }
  }

  // A destination is a device buffer or, if the server has chosen host memory, bytes in the region.
  void FillBuffers(const std::vector<Handle>& buffers, const std::vector<Tensor>& tensors) {
    using Memory = records::Memory<kEpoch>;
    const shm::ReadBudget budget(region_);
    if (buffers.size() != tensors.size()) {
      throw ServerError("GPU buffers size does not match the provided buffers: " +
                        std::to_string(tensors.size()) + " != " + std::to_string(buffers.size()));
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Tensor& tensor = tensors[i];
      if (tensor.data == nullptr) throw GpuError(tensor.unreachable);
      const shm::Block buffer = region_.Load(buffers[i]);
      const auto memory = buffer.Read<Memory>(0);
      if (memory.memory_type == static_cast<std::int32_t>(MemoryType::kGpu)) {
        const auto destination = gpu_.Open(EpochReader<kEpoch>::ReadDeviceMemory(buffer, 0));
        gpu_.Copy(tensor.memory_type_id, destination.get(), tensor.data, tensor.byte_size);
      } else {
        gpu_.Copy(tensor.memory_type_id, buffer.At(sizeof(Memory), tensor.byte_size), tensor.data,
                  tensor.byte_size);
      }
    }
  }

  // The server requests the last answer's GPU tensors, and waits for an acknowledgement even after an error.
  void LoadGpuBuffers(Handle buffers) {
    const auto tensors = std::move(pending_device_tensors_);
    if (!tensors.empty()) --journal_->device_buffers;
    pending_device_tensors_.clear();
    if (const auto failure = Attempt([&] { FillBuffers(ReadBuffers(buffers), tensors); })) {
      Print("cannot copy tensors to the server's GPU buffers", failure->text);
    }
    answers_.Push(records::kDummy);
    ForgetCommand();
  }

  bool FailureDeletesFactories() const override { return !StubDeletesFactories(kEpoch); }
  Tensor Allocate(const Tensor& tensor) override { return EpochWriter<kEpoch>::Allocate(region_, tensor); }
  shm::Queue& request_queue() { return HasRequestQueue(kEpoch) ? to_server_ : answers_; }

  shm::Queue server_messages_;
  shm::Queue released_;
  EpochReader<kEpoch> epoch_reader_;
  std::vector<Origin> origins_;                 // of the current batch, if responses are sent one by one
  std::vector<Tensor> pending_device_tensors_;  // of the last answer; the server requests their bytes next
};

}  // namespace

template <Release kEpoch>
std::unique_ptr<Wire> OpenEpoch(const Launch& launch, Release release, GpuMemory& gpu,
                                std::shared_ptr<Journal> journal) {
  return std::make_unique<EpochWire<kEpoch>>(launch, release, gpu, std::move(journal));
}

template std::unique_ptr<Wire> OpenEpoch<EPOCH>(const Launch&, Release, GpuMemory&, std::shared_ptr<Journal>);

}  // namespace envpack::abi
