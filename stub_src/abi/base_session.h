// The session with the server: the region, the main queues, and the commands that every release has.
#pragma once

#include <pthread.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>

#include "abi/codec.h"
#include "abi/commands.h"
#include "abi/journal.h"
#include "abi/launch.h"
#include "abi/records.h"
#include "abi/traits.h"
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
  BaseSession(const Launch& launch, Release release, std::shared_ptr<Journal> journal)
      : journal_(std::move(journal)),
        release_(release),
        numbers_(release),
        region_(launch.region, launch.region_growth, &journal_->ledger),
        control_(region_.Load(launch.control_handle)),
        commands_(region_, control().stub_message_queue, journal_->mark(QueueId::kCommands)),
        answers_(region_, control().parent_message_queue, journal_->mark(QueueId::kAnswers)) {}

  // Sends the startup message, for which the server waits first, until 25.07 without a timeout.
  void Announce() {
    if (release_ >= kFirstWithStartupMessage) answers_.Push(records::kDummy);
  }

  // Reports that the stub is alive. Call it about every 300 ms. Locks only the mutex of the record.
  void Beat() {
    try {
      const shm::BriefLock lock(&control().stub_health_mutex, std::chrono::seconds(1));
      control().stub_health = true;
    } catch (const std::system_error&) {
      // A model has damaged the mutex: then the server finds that, too.
    }
  }

  Command Receive() override {
    const Handle handle = commands_.Pop(&journal_->command);
    const shm::RegionLock lock(region_);
    current_ = region_.Load(handle);
    const shm::ReadBudget budget(region_);
    const Reader reader(region_);
    const records::Message message = *current_.As<records::Message>();
    switch (const CommandKind kind = numbers_.KindOf(message.command)) {
      case CommandKind::kAutoCompleteRequest:
        ForgetCommand();  // the process that answers may be another one
        return AutoCompleteCommand{reader.ReadString(message.args)};
      case CommandKind::kInitializeRequest:
        ForgetCommand();
        return InitializeCommand{reader.ReadDict(message.args)};
      case CommandKind::kFinalizeRequest:
        journal_->answer_pushed = 0;
        journal_->stage = Journal::kEnding;
        return FinalizeCommand{};
      default:
        return ReceiveOther(kind, message);
    }
  }

  void AnswerAutoComplete(const AutoCompleteAnswer& answer) override {
    Writer writer(region_);
    records::AutoCompleteResponse record{};
    std::optional<Failure> failure;
    if (const auto* config = std::get_if<std::string>(&answer)) {
      failure = Attempt([&] { record.model_config = writer.WriteString(*config); });
    } else {
      failure = std::get<Failure>(answer);
    }
    record.has_model_config = !failure;
    if (failure) {
      record.has_error = record.is_error_set = true;
      record.error = writer.WriteReason(failure->text);
    }
    Answer(writer, CommandKind::kAutoCompleteResponse, writer.Put(record).handle());
  }

  void AnswerInitialize(const InitializeAnswer& answer) override {
    Writer writer(region_);
    records::InitializeResponse record{};
    if (answer) {
      record.has_error = record.is_error_set = true;
      record.error = writer.WriteReason(answer->text);
    }
    Answer(writer, CommandKind::kInitializeResponse, writer.Put(record).handle());
  }

  void AnswerFinalize() override {
    current_.As<records::Message>()->command = numbers_.Of(CommandKind::kFinalizeResponse);
    answers_.Push(current_.handle(), &journal_->answer_pushed);
  }

  // Removes the name of the region. Used when the server, which owns the region, has died.
  void UnlinkRegion() noexcept { region_.Unlink(); }

 protected:
  // A message with a mutex and a condition by which the receiver answers.
  struct Call {
    Handle message;
    pthread_mutex_t* mutex;
    pthread_cond_t* condition;
    Handle mutex_block;
    Handle condition_block;
  };

  // Converts any other command.
  virtual Command ReceiveOther(CommandKind, const records::Message&) { return UnknownCommand{}; }

  records::Control& control() const { return *control_.As<records::Control>(); }

  records::Message MakeMessage(CommandKind kind, Handle args) const {
    records::Message message{};
    message.command = numbers_.Of(kind);
    message.args = args;
    return message;
  }

  Call MakeCall(Writer& writer, CommandKind kind, Handle args) const {
    const shm::Block& mutex = writer.Make(sizeof(pthread_mutex_t), shm::kRecordAlignment);
    const shm::Block& condition = writer.Make(sizeof(pthread_cond_t), shm::kRecordAlignment);
    shm::InitMutex(mutex.As<pthread_mutex_t>());
    shm::InitCondition(condition.As<pthread_cond_t>());
    records::Message message = MakeMessage(kind, args);
    message.inline_response = true;
    message.response_mutex = mutex.handle();
    message.response_cond = condition.handle();
    return {writer.Put(message).handle(), mutex.As<pthread_mutex_t>(), condition.As<pthread_cond_t>(),
            mutex.handle(), condition.handle()};
  }

  // Writes a record to its block and initialises its mutex and condition.
  template <typename Record>
  static Record* Share(const shm::Block& block, const Record& record) {
    auto* shared = block.As<Record>();
    *shared = record;
    shm::InitMutex(&shared->mutex);
    shm::InitCondition(&shared->condition);
    return shared;
  }

  void Answer(Writer& writer, CommandKind kind, Handle args) {
    AnswerWith(writer, writer.Put(MakeMessage(kind, args)));
  }

  // Returns when the server has added its references. Until then nothing may be released.
  void AnswerWith(Writer& writer, const shm::Block& message) {
    writer.Finish();
    journal_->answer_pushed = 0;
    journal_->acknowledged = kNothing;
    journal_->answer = message.handle();
    journal_->is_answering = 1;
    journal_->executing_since = 0;
    answers_.Push(message.handle(), &journal_->answer_pushed);
    commands_.Pop(&journal_->acknowledged);
    journal_->EndBatch();
    ForgetCommand();
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

extern template class BaseSession<Session>;
extern template class BaseSession<Wire>;

// Of a process that runs no model.
using FrontSession = BaseSession<Session>;

}  // namespace envpack::abi
