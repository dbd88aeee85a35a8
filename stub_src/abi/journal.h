// What a worker is doing with the server, noted where the front can read it when the worker has died.
//
// The journal lies in memory that front and worker share, and that is zero at first. The worker writes each
// note before the server can see what the note is about, or in the same breath; the front reads them after it
// has reaped the worker. Everything that the server knows of is a handle or an address.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "abi/values.h"
#include "base/descriptor.h"
#include "shm/ledger.h"
#include "shm/queue.h"

namespace envpack::abi {

using shm::Handle;

// Nothing has been taken from a queue.
inline constexpr std::int64_t kNothing = INT64_MIN;

// An exchange that the worker has begun: one message, for whose answer or acknowledgement a process waits.
struct Exchange {
  enum Kind : std::uint32_t {
    kFree = 0,
    kAnswered,    // both wait: the server until its answer has been read
    kTurns,       // the same, for a response
    kReported,    // only the worker waits
    kInference,   // as kAnswered, but no flag says that the answer has been read
    kStream,      // the same; further responses follow
    kImpossible,  // cannot be ended for a dead worker: device memory
  };
  // What does not change while the exchange lasts.
  struct Blocks {
    Handle message = 0;
    Handle record = 0;
    Handle mutex = 0;  // of an inference or a report; the others have theirs in the record
    Handle condition = 0;
    std::int64_t final_of = 0;  // address of the request whose final response or deletion this is, or 0
  };
  std::atomic<std::uint32_t> kind;
  std::atomic<std::uint32_t> pushed;
  std::atomic<std::uint32_t> is_read;  // the worker is about to release the server
  std::atomic<std::uint32_t> waits;    // of an inference: how often the worker has begun to wait
  Blocks blocks;
  std::uint64_t seal;  // of the blocks
};

// A request that the server has sent and that has not had its final response.
struct OpenRequest {
  enum State : std::uint32_t {
    kFree = 0,
    kOpen,
    kInAnswer,  // ends with the answer to the batch
    kFailing,   // the same, but the stub must delete the factory afterwards
    kFinished,  // has had its final response; the stub must still delete the factory
  };
  std::atomic<std::uint32_t> state;
  std::atomic<std::uint32_t> position;        // in its batch
  std::atomic<std::uint32_t> is_current;      // of the batch that execute() runs
  std::atomic<std::uint32_t> is_rescheduled;  // the server runs it again when it has the answer to the batch
  std::atomic<std::int64_t> request;
  std::atomic<std::int64_t> response_factory;
  std::atomic<std::uint64_t> seal;  // of request, factory and position, which the server trusts
};

// The queues between the two processes.
enum class QueueId : std::size_t { kCommands, kAnswers, kToServer, kServerMessages, kReleased };
inline constexpr std::size_t kQueues = 5;

struct Journal {
  static constexpr std::size_t kExchanges = 256;
  static constexpr std::size_t kRequests = 1 << 14;
  static constexpr std::size_t kStreams = 1 << 12;
  static constexpr std::int32_t kMostUnlisted = 1 << 20;

  // The worker's way. It waits in kReady until the front, which answers initialize, lets it serve.
  enum Stage : std::uint32_t { kStarting = 0, kReady, kServing, kEnding };
  std::atomic<std::uint32_t> stage;

  // The main exchange, in its order.
  std::atomic<std::int64_t> command;          // handle of the command, or kNothing
  std::atomic<std::uint32_t> has_listed;      // the requests of the command are among those below
  std::atomic<std::int64_t> executing_since;  // nanoseconds, monotonic; 0 if execute() does not run
  std::atomic<std::uint32_t> is_answering;
  std::atomic<std::int64_t> answer;  // handle of the message
  std::atomic<std::uint32_t> answer_pushed;
  std::atomic<std::int64_t> acknowledged;

  std::atomic<std::int64_t> server_message;  // handle of a message that the server has sent by itself
  std::atomic<std::int32_t> device_buffers;  // that the worker holds
  std::atomic<std::uint32_t> unlisted;       // exchanges, requests and streams for which there was no room

  std::array<shm::QueueMark, kQueues> marks;
  std::array<Exchange, kExchanges> exchanges;
  std::array<std::atomic<StreamId>, kStreams> streams;  // that the worker reads; 0 for none
  std::atomic<std::uint32_t> used_requests;             // all entries behind these are free
  std::array<OpenRequest, kRequests> requests;

  // Streams of dead workers that have not ended. Never cleared.
  std::array<std::atomic<StreamId>, kStreams> old_streams;
  std::atomic<std::uint32_t> has_old_streams;

  shm::Ledger ledger;

  shm::QueueMark* mark(QueueId queue) { return &marks[static_cast<std::size_t>(queue)]; }

  // For the next worker.
  void Clear();

  void Reach(Stage reached);
  // Waits until a stage has been left, or some time.
  void AwaitEndOf(Stage left, std::chrono::milliseconds limit) const;

  // The worker's notes. Any thread.
  void ListRequests(const std::vector<Request>& requests);
  void AddRequest(const Origin& origin, std::uint32_t position);
  OpenRequest* Find(std::int64_t request);
  void Close(std::int64_t request);
  // The request has had its final response. `deletes_factory`: whether the stub must delete its factory.
  void Finish(std::int64_t request, bool deletes_factory);
  void OpenStream(StreamId stream);
  void CloseStream(StreamId stream);
  // The front's note for later workers.
  void KeepStream(StreamId stream);
  bool IsOldStream(StreamId stream) const;
  // The server has got the answer to the batch.
  void EndBatch();
};

// A journal in memory that child processes share. Throws std::system_error.
std::shared_ptr<Journal> MakeJournal();

// A copy of a dead worker's notes, which no process that it has left behind can change. Nothing if they are
// damaged, since a model may have overwritten them. Throws std::system_error.
std::shared_ptr<Journal> ReadJournal(const Journal& noted);

// A journal in a memory file, which can be sent to processes that are no children. Throws std::system_error.
class JournalFile {
 public:
  JournalFile();
  // The file that another process has created.
  explicit JournalFile(Descriptor file) : file_(std::move(file)) {}

  int descriptor() const { return file_.number(); }
  // Is mapped at the first call.
  const std::shared_ptr<Journal>& journal();

 private:
  Descriptor file_;
  std::shared_ptr<Journal> journal_;
};

// Notes an exchange for a scope.
class NotedExchange {
 public:
  NotedExchange(Journal& journal, Exchange::Kind kind, const Exchange::Blocks& blocks);
  ~NotedExchange();

  Exchange* operator->() { return exchange_; }
  std::atomic<std::uint32_t>* pushed() { return &exchange_->pushed; }

 private:
  Journal& journal_;
  Exchange* exchange_;
  Exchange unlisted_{};
};

}  // namespace envpack::abi
