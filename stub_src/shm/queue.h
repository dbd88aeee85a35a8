// A bounded queue of 64-bit values between the two processes, and its record in the region.
#pragma once

#include <pthread.h>
#include <semaphore.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "shm/region.h"

namespace envpack::shm {

// The layout is the same in every release.
struct QueueRecord {
  sem_t empty;
  sem_t full;
  pthread_mutex_t mutex;
  std::uint64_t size;
  Handle slots;
  std::uint32_t head;
  std::uint32_t tail;
};

// How many threads of a process are between the wait for room or an entry and the report that they are done.
// In memory that the process shares with its parent.
using QueueMark = std::atomic<std::uint32_t>;

// Queues carry handles. 0 is never one: it acknowledges, wakes up or ends, depending on the exchange.
class Queue {
 public:
  // Attaches to a queue of the server. `mark` must live as long; null if no process watches this one.
  Queue(Region& region, Handle handle, QueueMark* mark = nullptr);

  // Whether there is a value, which may take some time to come.
  bool HasValueWithin(std::chrono::milliseconds limit);

  // Push() blocks while the queue is full, Pop() while it is empty: never with the GIL held. `pushed` becomes
  // 1 when the other process may take the value, `taken` becomes the value before the queue loses it.
  void Push(std::int64_t value, std::atomic<std::uint32_t>* pushed = nullptr);
  // The same with a limit. Throws Abandoned when it has passed.
  void PushWithin(std::chrono::milliseconds limit, std::int64_t value);
  std::int64_t Pop(std::atomic<std::int64_t>* taken = nullptr);

  // Makes the semaphores agree with the entries, after the death of a process in the middle of an operation.
  // `mark` is its mark. Returns how many entries were not taken although it had begun to take them. Throws
  // Abandoned if the queue is in a state that one death cannot explain.
  std::uint32_t Settle(std::uint32_t mark);
  QueueRecord* Record() const { return record_.As<QueueRecord>(); }
  // Whether the process died right after it had pushed `value`, before it could note that.
  bool WasLeftWith(std::int64_t value) const;
  // The values that were pushed and taken last. A queue that is full has lost the one that was taken.
  std::int64_t LastPushed() const;
  std::int64_t LastTaken() const;
  bool MayHaveTakenLast(std::int64_t value) const;
  // The value that Pop() would return, if there is any.
  std::int64_t Next() const;

 private:
  Block record_;
  Block slots_;
  std::uint64_t size_;  // as first read; the copy in the region might change

  class Inside;
  void Put(std::int64_t value, std::atomic<std::uint32_t>* pushed);
  std::int64_t Before(std::uint32_t position) const;
  struct State;
  State ReadState() const;

  QueueMark* mark_;
};

}  // namespace envpack::shm
