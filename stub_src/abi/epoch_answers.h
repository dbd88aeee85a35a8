// Batches of requests, and how they are answered.
#pragma once

#include <cstdio>
#include <utility>
#include <variant>

#include "abi/attempt.h"
#include "abi/bytes.h"
#include "abi/epoch_wire.h"
#include "shm/sync.h"

namespace envpack::abi {

template <Release kEpoch>
Command EpochWire<kEpoch>::ReceiveOther(CommandKind kind, const records::Message& message) {
  if (kind == CommandKind::kLoadGpuBuffers) {
    LoadGpuBuffers(message.args);
    return Receive();
  }
  if (kind != CommandKind::kExecuteRequest) return UnknownCommand{message.command};
  ExecuteCommand command{reader_.ReadRequests(message.args)};
  if constexpr (T::kAnswersBySender) {
    origins_.clear();
    for (const Request& request : command.requests) origins_.push_back(request.origin);
  }
  return command;
}

template <Release kEpoch>
typename EpochWire<kEpoch>::BatchRecord EpochWire<kEpoch>::MakeBatch(PlainWriter& writer,
                                                                     const ExecuteFailure& failure) const {
  BatchRecord batch{};
  batch.has_error = batch.is_error_set = true;
  batch.error = writer.WriteString(failure.text);
  if constexpr (T::kAnswersInOneBlock) batch.is_response_factory_deleted = failure.factories_deleted;
  return batch;
}

template <Release kEpoch>
void EpochWire<kEpoch>::AnswerExecute(const ExecuteAnswer& answer) {
  Writer<kEpoch> writer(region_);
  BatchRecord batch{};
  std::vector<Handle> responses;
  if (const auto* failure = std::get_if<ExecuteFailure>(&answer)) {
    batch = MakeBatch(writer, *failure);
  } else if constexpr (T::kAnswersBySender) {
    SendAll(std::get<std::vector<std::optional<Response>>>(answer));
  } else {
    for (const auto& response : std::get<std::vector<std::optional<Response>>>(answer)) {
      responses.push_back(response ? writer.WriteResponse(*response) : 0);
    }
  }
  batch.batch_size = static_cast<std::uint32_t>(responses.size());
  if constexpr (T::kAnswersInOneBlock) {
    AnswerInOneBlock(writer, batch, responses);
  } else {
    AnswerInTwoBlocks(writer, batch, responses);
  }
  origins_.clear();
  awaited_ = writer.device_tensors();
}

// The server takes the batch record from directly behind the message, in the same block, whatever `args`
// says.
template <Release kEpoch>
void EpochWire<kEpoch>::AnswerInOneBlock(Writer<kEpoch>& writer, const BatchRecord& batch,
                                         const std::vector<Handle>& responses) {
  const std::size_t responses_bytes = responses.size() * sizeof(Handle);
  constexpr std::size_t kBatchAt = sizeof(records::Message);
  constexpr std::size_t kResponsesAt = kBatchAt + sizeof(BatchRecord);
  const shm::Block& block = writer.Make(kResponsesAt + responses_bytes);
  *block.As<records::Message>() =
      MakeMessage(CommandKind::kExecuteResponse, block.handle() + static_cast<Handle>(kBatchAt));
  *block.As<BatchRecord>(kBatchAt) = batch;
  Copy(block.At(kResponsesAt, responses_bytes), responses.data(), responses_bytes);
  AnswerWith(block);
}

template <Release kEpoch>
void EpochWire<kEpoch>::AnswerInTwoBlocks(Writer<kEpoch>& writer, const BatchRecord& batch,
                                          const std::vector<Handle>& responses) {
  const std::size_t responses_bytes = responses.size() * sizeof(Handle);
  const shm::Block& block = writer.Make(sizeof(batch) + responses_bytes);
  *block.As<BatchRecord>() = batch;
  Copy(block.At(sizeof(batch), responses_bytes), responses.data(), responses_bytes);
  Answer(writer, CommandKind::kExecuteResponse, block.handle());
}

// Each response travels as a sender's; the answer itself then carries none. Once the first is sent the batch
// cannot fail as a whole any more, so what goes wrong with one is said to the request that it was for.
template <Release kEpoch>
void EpochWire<kEpoch>::SendAll(const std::vector<std::optional<Response>>& responses) {
  for (std::size_t i = 0; i < responses.size() && i < origins_.size(); ++i) {
    if (!responses[i]) continue;
    try {
      Send(origins_[i], responses[i], kResponseFinal);
    } catch (const shm::RegionFull& error) {
      Send(origins_[i], Response{{}, Error{error.what()}, ""}, kResponseFinal);
    } catch (const ServerFailed& error) {
      std::fprintf(stderr, "envpack stub: a response could not be sent: %s\n", error.what());
    }
  }
}

// Both sides take turns: the server sends the response, says how it went, and waits until we have read that.
// If the response has tensors on a GPU, there is a turn before, in which the server says where it wants them.
template <Release kEpoch>
void EpochWire<kEpoch>::Send(const Origin& origin, const std::optional<Response>& response,
                             std::uint32_t flags) {
  Writer<kEpoch> writer(region_);
  records::ResponseSend<kEpoch> record{};
  record.request_address = origin.request;
  record.response_factory_address = origin.response_factory;
  record.response = response ? writer.WriteResponse(*response) : 0;
  record.flags = flags;
  const shm::Block& block = writer.MakeAligned(sizeof(record));
  auto* shared = Share(block, record);
  const shm::Block& message = writer.Put(MakeMessage(CommandKind::kResponseSend, block.handle()));

  std::optional<std::string> failure;
  own_requests().Push(message.handle());
  {
    shm::Lock lock(&shared->mutex);
    const auto wait = [&] {
      while (!shared->is_stub_turn) lock.Wait(&shared->condition);
    };
    wait();
    if (!writer.device_tensors().empty() && !shared->has_error) {
      failure = Attempt([&] { FillBuffers(ReadBuffers(shared->gpu_buffers), writer.device_tensors()); });
      shared->is_stub_turn = false;
      shm::Notify(&shared->condition);
      wait();
    }
    if (shared->has_error) {
      failure = plain_reader_.ErrorText(shared->is_error_set, shared->error,
                                        "An error occurred while sending a response.");
    }
    shared->is_stub_turn = false;
  }
  shm::Notify(&shared->condition);
  if (T::kStubDeletesFactories && flags == kResponseFinal && origin.response_factory != 0) {
    DropResponseFactory(origin);
  }
  if (failure) throw ServerFailed(*failure);
}

template <Release kEpoch>
void EpochWire<kEpoch>::DropResponseFactory(const Origin& origin) {
  if constexpr (CommandNumbers(kEpoch).Of(CommandKind::kResponseFactoryCleanup) != CommandNumbers::kNone) {
    SendCleanup(CommandKind::kResponseFactoryCleanup, origin.response_factory);
  }
}

template <Release kEpoch>
void EpochWire<kEpoch>::SetReleaseFlags(const Origin& origin, [[maybe_unused]] std::uint32_t flags) {
  if constexpr (T::kHasReleaseFlags) {
    static_cast<const shm::Block*>(origin.record.get())->As<records::Request<kEpoch>>()->release_flags =
        flags;
  }
}

}  // namespace envpack::abi
