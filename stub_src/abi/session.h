// Being there for the server: the region, the main queues, and the commands that every release has.
#pragma once

#include <memory>

#include "abi/commands.h"
#include "abi/launch.h"
#include "abi/plain_reader.h"
#include "abi/plain_writer.h"
#include "abi/records.h"
#include "abi/wire.h"
#include "shm/queue.h"
#include "shm/region.h"

namespace envpack::abi {

// `Interface` is Attendance, or Wire for what derives from this.
template <typename Interface>
class Session : public Interface {
 public:
  Session(const Launch& launch, Release release);

  void Announce() override;
  void Beat() override;
  Command Receive() override;
  void AnswerAutoComplete(const AutoCompleteAnswer& answer) override;
  void AnswerInitialize(const InitializeAnswer& answer) override;
  void AnswerFinalize() override;
  void Abandon() noexcept override { region_.Unlink(); }

 protected:
  // What to make of any other command.
  virtual Command ReceiveOther(CommandKind kind, const records::Message& message);

  records::Control& control() const { return *control_.As<records::Control>(); }
  records::Message MakeMessage(CommandKind kind, Handle args) const;
  void Answer(PlainWriter& writer, CommandKind kind, Handle args);
  // Returns when the server has taken its references; until then nothing may be released.
  void AnswerWith(const shm::Block& message);
  void ForgetCommand() { current_ = shm::Block(); }

  const Release release_;
  const CommandNumbers numbers_;
  shm::Region region_;
  shm::Block control_;
  shm::Queue commands_;
  shm::Queue answers_;

 private:
  shm::Block current_;  // the command being dealt with; Finalize is answered in the same block
};

}  // namespace envpack::abi
