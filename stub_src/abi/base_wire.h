// The part of the wire whose records are the same in every release that has them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "abi/base_session.h"
#include "abi/codec.h"
#include "abi/wire.h"
#include "base/forks.h"
#include "shm/queue.h"
#include "shm/sync.h"

namespace envpack::abi {

class BaseWire : public BaseSession<Wire> {
 public:
  BaseWire(const Launch& launch, Release release, GpuMemory& gpu, std::shared_ptr<Journal> journal);

  Release ServerRelease() const override { return release_; }
  bool UsesEnvironment() const override { return control().uses_env; }
  bool Decoupled() const override { return control().decoupled; }
  std::uint64_t FreeBytes() override { return region_.FreeBytes(); }
  void Log(const LogLine& line) override;
  bool IsCancelled(const Origin& origin) override;
  void DeleteResponseFactory(const Origin& origin) override;
  bool IsOldStream(StreamId stream) const override { return journal_->IsOldStream(stream); }
  void EndStream(StreamId stream) override;
  void CancelStream(StreamId stream) override;
  ServerAddress CreateMetricFamily(const MetricFamily& family) override;
  void DeleteMetricFamily(ServerAddress family) override;
  void EnableReadinessProbes() override;
  void LoadModel(const ModelToLoad& model) override;
  void UnloadModel(const std::string& name, bool unload_dependents) override;
  bool IsModelReady(const std::string& name, const std::string& version) override;

 protected:
  template <typename Record, typename Finish>
  void Exchange(Writer& writer, CommandKind kind, const Record& record, Finish finish);
  // The record as the server has filled it. Throws ServerError if it contains an error.
  template <typename Record>
  Record ExchangeOrThrow(Writer& writer, CommandKind kind, const Record& record);
  records::CustomMetrics ExchangeMetrics(Writer& writer, CommandKind kind, Handle message);

  // Messages that the server sends without a request.
  void AttachPool(const records::Message& message);
  ReadinessProbe ReadProbe(const records::Message& message);

  GpuMemory& gpu_;
  Reader reader_;
  shm::Queue to_server_;

 private:
  void SendCleanup(CommandKind kind, std::int64_t id, std::int64_t request = 0);
  bool ExchangeModelControl(CommandKind kind, const ModelToLoad& model, const std::string& version,
                            bool unload_dependents);
};

// The two-way exchange of most requests of the stub: sends the record, waits until the server has filled it,
// lets `finish` copy the answer, and only then releases the server. Each step wakes the server's thread, so
// the mutex is held neither when the record is sent nor when the server is released.
template <typename Record, typename Finish>
void BaseWire::Exchange(Writer& writer, CommandKind kind, const Record& record, Finish finish) {
  const shm::Block& block = writer.Make(sizeof(record));
  Record* shared = Share(block, record);
  const Handle message = writer.Put(MakeMessage(kind, block.handle())).handle();
  writer.Finish();
  const forks::Undisturbed undisturbed;
  NotedExchange noted(*journal_, Exchange::kAnswered, {message, block.handle()});
  to_server_.Push(message, noted.pushed());
  {
    shm::Lock lock(&shared->mutex);
    while (!shared->waiting_on_stub) lock.Wait(&shared->condition);
    finish(*shared);
    noted->is_read = 1;
    shared->waiting_on_stub = false;
  }
  shm::Notify(&shared->condition);
}

template <typename Record>
Record BaseWire::ExchangeOrThrow(Writer& writer, CommandKind kind, const Record& record) {
  Record filled{};
  std::optional<std::string> failure;
  Exchange(writer, kind, record, [&](const Record& answer) {
    filled = answer;
    if (answer.has_error) failure = reader_.ErrorText(answer.is_error_set, answer.error);
  });
  if (failure) throw ServerError(*failure);
  return filled;
}

// Defined in epoch.cc for each epoch that the stub is built with.
template <Release kEpoch>
std::unique_ptr<Wire> OpenEpoch(const Launch& launch, Release release, GpuMemory& gpu,
                                std::shared_ptr<Journal> journal);

}  // namespace envpack::abi
