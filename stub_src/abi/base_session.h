// The session with the server: the region, the main queues, and the commands that every release has.
#pragma once

#include <pthread.h>

#include <memory>

#include "abi/codec.h"
#include "abi/commands.h"
#include "abi/journal.h"
#include "abi/launch.h"
#include "abi/records.h"
#include "abi/wire.h"
#include "shm/queue.h"
#include "shm/region.h"
#include "shm/sync.h"

namespace envpack::abi {

// `Interface` is Session, or Wire for classes that derive from this one.
template <typename Interface>
class BaseSession : public Interface {
 public:
  // Notes what it does in `journal`.
  BaseSession(const Launch& launch, Release release, std::shared_ptr<Journal> journal);

  void Announce() override;
  void Beat(bool is_alive) override;
  Command Receive() override;
  void AnswerAutoComplete(const AutoCompleteAnswer& answer) override;
  void AnswerInitialize(const InitializeAnswer& answer) override;
  void AnswerFinalize() override;
  void UnlinkRegion() noexcept override { region_.Unlink(); }

 protected:
  // Converts any other command.
  virtual Command ReceiveOther(CommandKind kind, const records::Message& message);

  records::Control& control() const { return *control_.As<records::Control>(); }
  records::Message MakeMessage(CommandKind kind, Handle args) const;
  void Answer(Writer& writer, CommandKind kind, Handle args);
  // Returns when the server has added its references. Until then nothing may be released.
  void AnswerWith(Writer& writer, const shm::Block& message);
  // A message with a mutex and a condition by which the receiver answers.
  struct Call {
    Handle message;
    pthread_mutex_t* mutex;
    pthread_cond_t* condition;
    Handle mutex_block;
    Handle condition_block;
  };
  Call MakeCall(Writer& writer, CommandKind kind, Handle args) const;
  // Writes a record to its block and initialises its mutex and condition.
  template <typename Record>
  static Record* Share(const shm::Block& block, const Record& record) {
    auto* shared = block.As<Record>();
    *shared = record;
    shm::InitMutex(&shared->mutex);
    shm::InitCondition(&shared->condition);
    return shared;
  }
  void ForgetCommand() { current_ = shm::Block(); }

  const std::shared_ptr<Journal> journal_;
  const Release release_;
  const CommandNumbers numbers_;
  shm::Region region_;
  shm::Block control_;
  shm::Queue commands_;
  shm::Queue answers_;

 private:
  shm::Block current_;  // Finalize, which is answered in the same block, or the batch
};

}  // namespace envpack::abi
