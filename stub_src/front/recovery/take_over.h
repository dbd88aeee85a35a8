// Puts right what a dead worker has left with the server.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "abi/journal.h"
#include "front/recovery/deputy.h"

namespace envpack::front {

class Pending;

// One take-over for each death. Reads the journal once, so that the next worker can use it.
class TakeOver {
 public:
  // `error` is what the requests of the worker get. Call it when the worker has been reaped. Afterwards every
  // request is answered and the journal is clear. If the journal is damaged, these are the requests of the
  // last batch only. Throws shm::Abandoned with the reason if something cannot be put right.
  TakeOver(Deputy& deputy, abi::Journal& journal, const std::string& error);
  ~TakeOver();

  // Goes on with what the server has not finished: requests of the dead worker to other models. Returns
  // whether nothing is left. Then, and not before, what the worker held in the region may be given back.
  bool Advance();
  void GiveBack() noexcept;

 private:
  void ReadNotes();
  void CompleteNotes();
  bool AgreesWithQueues();
  void FailLastCommand(const std::string& error);
  void CheckThatAllIsNoted() const;
  void SettleQueues();
  void ListExchanges();
  void EndExchanges();
  void AcknowledgeServerMessage();
  void AnswerBatch(const std::string& error);
  void AnswerRequests(const std::string& error);
  void ListBatch(const std::vector<abi::Origin>& origins);
  void FailBatch(const std::string& error, std::size_t size);
  std::vector<abi::OpenRequest*> OpenRequests(bool current) const;

  Deputy& deputy_;
  abi::Journal& journal_;                // for the next worker
  std::shared_ptr<abi::Journal> notes_;  // of the dead one; null if they are damaged
  std::vector<abi::Handle> held_;
  std::vector<Pending> pending_;
};

}  // namespace envpack::front
