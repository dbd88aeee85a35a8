// What the stub asks the server for in records that are the same in every release that has them.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <optional>
#include <string>

#include "abi/plain_reader.h"
#include "abi/plain_writer.h"
#include "abi/session.h"
#include "abi/wire.h"
#include "shm/queue.h"
#include "shm/sync.h"

namespace envpack::abi {

class CommonWire : public Session<Wire> {
 public:
  CommonWire(const Launch& launch, Release release);

  Release ServerRelease() const override { return release_; }
  bool UsesEnvironment() const override { return control().uses_env; }
  bool Decoupled() const override { return control().decoupled; }
  std::uint64_t FreeBytes() override { return region_.FreeBytes(); }
  void Log(const LogLine& line) override;
  bool IsCancelled(const Origin& origin) override;
  void EndStream(StreamId stream) override;
  void CancelStream(StreamId stream) override;
  ServerAddress CreateMetricFamily(const MetricFamily& family) override;
  void DeleteMetricFamily(ServerAddress family) override;
  void OfferReadiness() override;
  void LoadModel(const ModelToLoad& model) override;
  void UnloadModel(const std::string& name, bool unload_dependents) override;
  bool IsModelReady(const std::string& name, const std::string& version) override;

 protected:
  // A message that the receiver answers by way of a mutex and a condition that lie beside it.
  struct Call {
    Handle message;
    pthread_mutex_t* mutex;
    pthread_cond_t* condition;
  };

  Call MakeCall(PlainWriter& writer, CommandKind kind, Handle args);
  // Puts a record into its block and sets up the mutex and the condition in it.
  template <typename Record>
  static Record* Share(const shm::Block& block, const Record& record);
  template <typename Record, typename Finish>
  void Exchange(PlainWriter& writer, CommandKind kind, const Record& record, Finish finish);
  // The record's fields has_error, is_error_set and error as the server has filled them.
  template <typename Record>
  Record AskOrThrow(PlainWriter& writer, CommandKind kind, const Record& record);
  void SendCleanup(CommandKind kind, std::int64_t id);
  records::CustomMetrics AskMetrics(PlainWriter& writer, CommandKind kind, Handle message);

  PlainReader plain_reader_;
  shm::Queue to_server_;

 private:
  bool AskModels(CommandKind kind, const ModelToLoad& model, const std::string& version,
                 bool unload_dependents);
};

template <typename Record>
Record* CommonWire::Share(const shm::Block& block, const Record& record) {
  auto* shared = block.As<Record>();
  *shared = record;
  shm::InitMutex(&shared->mutex);
  shm::InitCondition(&shared->condition);
  return shared;
}

// The two-way exchange of most of the stub's own requests: hand the record over, wait until the server has
// filled it, let `finish` copy what it says, and only then release the server. The server's thread is woken
// by each step, so it is handed over and released without the mutex: it would only wake to wait for that.
template <typename Record, typename Finish>
void CommonWire::Exchange(PlainWriter& writer, CommandKind kind, const Record& record, Finish finish) {
  const shm::Block& block = writer.Make(sizeof(record));
  Record* shared = Share(block, record);
  const shm::Block& message = writer.Put(MakeMessage(kind, block.handle()));
  to_server_.Push(message.handle());
  {
    shm::Lock lock(&shared->mutex);
    while (!shared->waiting_on_stub) lock.Wait(&shared->condition);
    finish(*shared);
    shared->waiting_on_stub = false;
  }
  shm::Notify(&shared->condition);
}

template <typename Record>
Record CommonWire::AskOrThrow(PlainWriter& writer, CommandKind kind, const Record& record) {
  Record filled{};
  std::optional<std::string> failure;
  Exchange(writer, kind, record, [&](const Record& answer) {
    filled = answer;
    if (answer.has_error) failure = plain_reader_.ErrorText(answer.is_error_set, answer.error);
  });
  if (failure) throw ServerFailed(*failure);
  return filled;
}

}  // namespace envpack::abi
