#include "abi/base_session.h"

#include <chrono>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>

#include "abi/traits.h"
#include "base/output.h"
#include "shm/sync.h"

namespace envpack::abi {

namespace {

constexpr std::chrono::seconds kForHealth(1);
constexpr std::size_t kMostWithoutRoom = 2000;  // bytes of a text

// The server waits for the first answer without a limit, so a reason for which the region has no room is cut
// off.
Handle WriteReason(Writer& writer, const std::string& text) {
  try {
    return writer.WriteString(text);
  } catch (const shm::RegionFull& full) {
    return writer.WriteString(Beginning(text, kMostWithoutRoom) + "\n" + full.what());
  }
}

}  // namespace

template <typename Interface>
BaseSession<Interface>::BaseSession(const Launch& launch, Release release, std::shared_ptr<Journal> journal)
    : journal_(std::move(journal)),
      release_(release),
      numbers_(release),
      region_(launch.region, launch.region_growth, &journal_->ledger),
      control_(region_.Load(launch.control_handle)),
      commands_(region_, control().stub_message_queue, journal_->mark(QueueId::kCommands)),
      answers_(region_, control().parent_message_queue, journal_->mark(QueueId::kAnswers)) {}

template <typename Interface>
void BaseSession<Interface>::Announce() {
  if (release_ >= kFirstWithStartupMessage) answers_.Push(records::kDummy);
}

template <typename Interface>
void BaseSession<Interface>::Beat(bool is_alive) {
  try {
    const shm::Lock lock(&control().stub_health_mutex, kForHealth);
    control().stub_health = is_alive;
  } catch (const std::system_error&) {
    // A model has damaged the mutex: then the server finds that, too.
  }
}

template <typename Interface>
Command BaseSession<Interface>::Receive() {
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

template <typename Interface>
Command BaseSession<Interface>::ReceiveOther(CommandKind, const records::Message& message) {
  return UnknownCommand{message.command};
}

template <typename Interface>
records::Message BaseSession<Interface>::MakeMessage(CommandKind kind, Handle args) const {
  records::Message message{};
  message.command = numbers_.Of(kind);
  message.args = args;
  return message;
}

template <typename Interface>
typename BaseSession<Interface>::Call BaseSession<Interface>::MakeCall(Writer& writer, CommandKind kind,
                                                                       Handle args) const {
  const shm::Block& mutex = writer.MakeAligned(sizeof(pthread_mutex_t));
  const shm::Block& condition = writer.MakeAligned(sizeof(pthread_cond_t));
  shm::InitMutex(mutex.As<pthread_mutex_t>());
  shm::InitCondition(condition.As<pthread_cond_t>());
  records::Message message = MakeMessage(kind, args);
  message.inline_response = true;
  message.response_mutex = mutex.handle();
  message.response_cond = condition.handle();
  return {writer.Put(message).handle(), mutex.As<pthread_mutex_t>(), condition.As<pthread_cond_t>(),
          mutex.handle(), condition.handle()};
}

template <typename Interface>
void BaseSession<Interface>::Answer(Writer& writer, CommandKind kind, Handle args) {
  AnswerWith(writer, writer.Put(MakeMessage(kind, args)));
}

template <typename Interface>
void BaseSession<Interface>::AnswerWith(Writer& writer, const shm::Block& message) {
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

template <typename Interface>
void BaseSession<Interface>::AnswerAutoComplete(const AutoCompleteAnswer& answer) {
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
    record.error = WriteReason(writer, failure->text);
  }
  Answer(writer, CommandKind::kAutoCompleteResponse, writer.Put(record).handle());
}

template <typename Interface>
void BaseSession<Interface>::AnswerInitialize(const InitializeAnswer& answer) {
  Writer writer(region_);
  records::InitializeResponse record{};
  if (answer) {
    record.has_error = record.is_error_set = true;
    record.error = WriteReason(writer, answer->text);
  }
  Answer(writer, CommandKind::kInitializeResponse, writer.Put(record).handle());
}

template <typename Interface>
void BaseSession<Interface>::AnswerFinalize() {
  current_.template As<records::Message>()->command = numbers_.Of(CommandKind::kFinalizeResponse);
  answers_.Push(current_.handle(), &journal_->answer_pushed);
}

template class BaseSession<Session>;
template class BaseSession<Wire>;

std::unique_ptr<Session> OpenSession(const Launch& launch, Release release) {
  return std::make_unique<BaseSession<Session>>(launch, release, MakeJournal());
}

}  // namespace envpack::abi
