// What a process that has died leaves in shared memory, and how its parent puts that right.
#include "shm/abandoned.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "check.h"
#include "peer.h"
#include "peer_sync.h"
#include "shm/ledger.h"
#include "shm/queue.h"
#include "shm/region.h"
#include "shm/sync.h"

namespace envpack::shm {
namespace {

using test::PeerQueue;
using test::PeerRegion;

// What the processes of a case share.
struct Shared {
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  std::atomic<std::uint32_t> waiting;
  std::atomic<std::uint32_t> woken;
  Ledger ledger;
};

std::unique_ptr<Shared, void (*)(Shared*)> Share() {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  auto* shared = static_cast<Shared*>(memory);
  InitMutex(&shared->mutex);
  InitCondition(&shared->condition);
  return {shared, [](Shared* mapped) { munmap(mapped, sizeof(Shared)); }};
}

pid_t Start(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child != 0) return child;
  work();
  _exit(0);
}

void End(pid_t child, int signal = 0) {
  if (signal != 0) kill(child, signal);
  waitpid(child, nullptr, 0);
}

void Await(const std::atomic<std::uint32_t>& count, std::uint32_t wanted) {
  while (count < wanted) usleep(1000);
}

// Waits as the server does, until it is woken for good.
void WaitOnce(Shared& shared) {
  Lock lock(&shared.mutex);
  ++shared.waiting;
  lock.Wait(&shared.condition);
  ++shared.woken;
}

CASE(a_mutex_is_abandoned_when_its_owner_is_dead) {
  const auto shared = Share();
  CHECK(!IsAbandoned(shared->mutex));
  {
    const Lock lock(&shared->mutex);
    CHECK(!IsAbandoned(shared->mutex));
  }
  End(Start([&] { pthread_mutex_lock(&shared->mutex); }));
  CHECK(IsAbandoned(shared->mutex));
  {
    const LockAnyway lock(&shared->mutex, "the mutex");
    CHECK(!IsAbandoned(shared->mutex));
  }
  const Lock again(&shared->mutex);
}

CASE(a_mutex_that_the_kernel_has_marked_can_be_locked) {
  const auto shared = Share();
  test::InitShared(&shared->mutex);
  End(Start([&] { pthread_mutex_lock(&shared->mutex); }));
  CHECK(IsAbandoned(shared->mutex));
  {
    const BriefLock lock(&shared->mutex);
    CHECK(lock.owner_died());
  }
  CHECK_EQ(pthread_mutex_lock(&shared->mutex), 0);
  pthread_mutex_unlock(&shared->mutex);
}

// The server aborts if it gets a robust mutex with the kernel's mark.
CASE(a_server_waits_for_the_mutex_of_a_process_that_was_killed_until_another_takes_it_over) {
  const auto shared = Share();
  test::InitShared(&shared->mutex);
  End(Start([&] {
    const BriefLock lock(&shared->mutex);
    _exit(0);
  }));
  CHECK(IsAbandoned(shared->mutex));
  const pid_t server = Start([&] {
    ++shared->waiting;
    shared->woken = 1 + static_cast<std::uint32_t>(pthread_mutex_lock(&shared->mutex));
    pthread_mutex_unlock(&shared->mutex);
  });
  const auto* word = reinterpret_cast<const volatile std::uint32_t*>(&shared->mutex);
  while ((*word & FUTEX_WAITERS) == 0) usleep(1000);
  CHECK_EQ(shared->woken.load(), 0U);
  {
    const BriefLock lock(&shared->mutex);
    CHECK(lock.owner_died());
  }
  End(server);
  CHECK_EQ(shared->woken.load(), 1U);
  const BriefLock again(&shared->mutex);
  CHECK(!again.owner_died());
}

CASE(locks_that_are_noted_and_those_that_are_not_exclude_each_other) {
  const auto shared = Share();
  test::InitShared(&shared->mutex);
  constexpr std::uint32_t kRounds = 20'000;
  const auto count = [&] { shared->waiting = shared->waiting.load(std::memory_order_relaxed) + 1; };
  const pid_t server = Start([&] {
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      const Lock lock(&shared->mutex);
      count();
    }
  });
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const BriefLock lock(&shared->mutex);
    count();
  }
  End(server);
  CHECK_EQ(shared->waiting.load(), 2 * kRounds);
}

CASE(a_robust_mutex_of_a_living_thread_is_waited_for) {
  const auto shared = Share();
  test::InitShared(&shared->mutex);
  const BriefLock lock(&shared->mutex);
  const auto wait = [&] { BriefLock(&shared->mutex, std::chrono::milliseconds(300)); };
  CHECK(std::async(std::launch::async, [&] { return THROWN(std::system_error, wait()); }).get() != "");
}

CASE(a_mutex_of_a_living_process_is_waited_for_and_not_taken) {
  const auto shared = Share();
  const pid_t holder = Start([&] {
    pthread_mutex_lock(&shared->mutex);
    ++shared->waiting;
    pause();
  });
  Await(shared->waiting, 1);
  CHECK_EQ(THROWN(Abandoned, LockAnyway(&shared->mutex, "the mutex")), "the mutex stays locked");
  End(holder, SIGKILL);
  const LockAnyway lock(&shared->mutex, "the mutex");
}

// glibc's own functions would wait for the dead one here.
CASE(waits_end_although_a_process_died_while_it_waited) {
  const auto shared = Share();
  const pid_t dead = Start([&] { WaitOnce(*shared); });
  Await(shared->waiting, 1);
  {
    const Lock lock(&shared->mutex);
  }  // it waits when this can be locked
  End(dead, SIGKILL);
  const pid_t server = Start([&] {
    {
      const Lock lock(&shared->mutex);
      Notify(&shared->condition);
    }
    WaitOnce(*shared);
  });
  Await(shared->waiting, 2);
  {
    const Lock lock(&shared->mutex);
  }
  CHECK_EQ(WaitsBegun(shared->condition), 2u);
  while (shared->woken == 0) {
    EndWaits(&shared->condition);
    usleep(1000);
  }
  End(server);
}

struct TwoQueues {
  PeerRegion peer;
  PeerQueue theirs{peer, 3};
  Region region{peer.name(), 1 << 20};
  QueueMark mark{0};
  Queue ours{region, theirs.handle(), &mark};
  QueueRecord* record = ours.Record();
};

CASE(an_entry_that_a_dead_process_had_begun_to_take_is_there_again) {
  TwoQueues queues;
  queues.theirs.Push(7);
  CHECK_EQ(queues.ours.Settle(queues.mark), 0u);
  WaitFor(&queues.record->full);
  queues.mark = 1;
  CHECK_EQ(queues.ours.Settle(queues.mark), 1u);
  CHECK_EQ(queues.ours.Pop(), 7);
}

CASE(room_that_a_dead_process_had_taken_or_not_given_back_is_there_again) {
  TwoQueues queues;
  queues.mark = 1;
  WaitFor(&queues.record->empty);  // before the entry
  CHECK_EQ(queues.ours.Settle(queues.mark), 0u);
  queues.theirs.Push(8);
  WaitFor(&queues.record->full);
  queues.record->tail = (queues.record->tail + 1) % 3;  // and before the room is given back
  CHECK_EQ(queues.ours.Settle(queues.mark), 0u);
  for (const std::int64_t value : {1, 2, 3}) queues.theirs.Push(value);
  for (const std::int64_t value : {1, 2, 3}) CHECK_EQ(queues.ours.Pop(), value);
}

CASE(what_a_process_took_that_died_before_its_mark_is_there_again) {
  TwoQueues queues;
  queues.theirs.Push(7);
  WaitFor(&queues.record->full);
  CHECK_EQ(queues.ours.Settle(queues.mark), 1u);
  CHECK_EQ(queues.ours.Pop(), 7);
}

CASE(a_queue_in_a_state_that_the_dead_process_cannot_have_left_is_told) {
  TwoQueues queues;
  for (int i = 0; i < 2; ++i) WaitFor(&queues.record->empty);
  CHECK_EQ(THROWN(Abandoned, queues.ours.Settle(queues.mark)), "a queue is damaged");
}

CASE(a_queue_whose_lock_is_abandoned_tells_whether_the_last_value_was_pushed) {
  TwoQueues queues;
  queues.ours.Push(5);
  CHECK(!queues.ours.WasLeftWith(5));
  End(Start([&] { pthread_mutex_lock(&queues.record->mutex); }));
  CHECK(queues.ours.WasLeftWith(5));
  CHECK(!queues.ours.WasLeftWith(6));
  CHECK_EQ(queues.ours.Settle(queues.mark), 0u);
  CHECK_EQ(queues.theirs.Pop(), 5);
}

CASE(a_ledger_lists_what_is_held) {
  const auto shared = Share();
  Ledger& ledger = shared->ledger;
  const auto first = ledger.Add(16);
  const auto second = ledger.Add(32);
  ledger.Add(16);
  CHECK(ledger.Held().value() == (std::vector<Handle>{16, 32, 16}));
  ledger.Remove(first);
  ledger.Remove(second);
  CHECK(ledger.Held().value() == (std::vector<Handle>{16}));
  ledger.Add(48);
  ledger.Add(64);
  ledger.Add(80);
  CHECK(ledger.Held().value() == (std::vector<Handle>{64, 48, 16, 80}));
  ledger.Clear();
  CHECK(ledger.Held().value().empty());
}

CASE(a_ledger_without_room_does_not_say_what_is_held) {
  const auto shared = Share();
  Ledger& ledger = shared->ledger;
  while (ledger.Add(16) != Ledger::kUnlisted) {
  }
  CHECK(!ledger.Held());
  ledger.Remove(Ledger::kUnlisted);
  CHECK(ledger.Held().has_value());
}

// A model that dies may have overwritten everything that it shares with its parent.
CASE(a_ledger_that_is_overwritten_does_not_say_what_is_held) {
  for (const auto& damage : std::vector<std::function<void(char*)>>{
           [](char* notes) { std::memset(notes, 0xff, UndoLog::kNotes); },
           [](char* notes) { *reinterpret_cast<std::uint32_t*>(notes) = UINT32_MAX; },  // used entries
           [](char* notes) { *reinterpret_cast<std::uint32_t*>(notes + 8) = 1; },       // unlisted
           [](char* notes) { *reinterpret_cast<Handle*>(notes + 16) = 48; },            // an entry
           [](char* notes) { *reinterpret_cast<Handle*>(notes + 16) = INT64_MAX; },
           [](char* notes) { *reinterpret_cast<Handle*>(notes + 16) = INT64_MIN; }}) {
    const auto shared = Share();
    shared->ledger.Add(16);
    CHECK(shared->ledger.Held().has_value());
    damage(reinterpret_cast<char*>(&shared->ledger) + sizeof(UndoLog));
    CHECK(!shared->ledger.Held());
  }
}

CASE(an_undo_log_that_is_overwritten_changes_nothing) {
  constexpr std::int64_t kNote = 1;  // the distance counts from the log
  for (const std::int64_t distance :
       {INT64_MAX, INT64_MIN, std::int64_t{-8}, std::int64_t{4}, std::int64_t{57}, std::int64_t{64},
        INT64_MAX | kNote, std::int64_t{-8} | kNote, std::int64_t{8} | kNote,
        static_cast<std::int64_t>(sizeof(UndoLog) + UndoLog::kNotes) | kNote}) {
    const auto shared = Share();
    char region[64] = {};
    auto* words = reinterpret_cast<std::int64_t*>(&shared->ledger);
    words[0] = 2;  // entries that are used
    words[1] = 0;
    words[2] = 7;
    words[3] = distance;
    CHECK(!shared->ledger.undo_log().Undo(region, sizeof(region)));
    CHECK_EQ(*reinterpret_cast<std::int64_t*>(region), 0);
  }
}

CASE(a_mutex_that_is_overwritten_is_never_locked) {
  for (const int kind : {-1, 0, 0x20 | 0x80, 0x40 | 0x80, 0x81, 0xA5}) {
    const auto shared = Share();
    shared->mutex.__data.__kind = kind;
    CHECK_HAS(THROWN(std::system_error, LockAnyway(&shared->mutex, "it")), "is damaged");
    CHECK_HAS(THROWN(std::system_error, Lock(&shared->mutex)), "is damaged");
  }
  const auto shared = Share();
  test::InitShared(&shared->mutex);  // it is robust, and a thread that lives has it
  shared->mutex.__data.__lock = 1;
  shared->mutex.__data.__owner = 1;
  CHECK_EQ(THROWN(Abandoned, LockAnyway(&shared->mutex, "it")), "it stays locked");
}

CASE(blocks_of_a_dead_process_are_given_back) {
  PeerRegion peer;
  const std::uint64_t free = peer.FreeBytes();
  const auto block = peer.Create(100);
  const auto shared = Share();
  End(Start([&] {
    Region region(peer.name(), 1 << 20, &shared->ledger);
    auto* kept = new std::vector<Block>;
    kept->push_back(region.Create(1000));
    kept->push_back(region.Load(block));
    region.Create(64);  // and given back at once
    _exit(0);
  }));
  Region region(peer.name(), 1 << 20);
  region.CheckLock();
  CHECK_EQ(region.References(block), 2u);
  CHECK_EQ(shared->ledger.Held().value().size(), 2u);
  region.ReleaseFor(shared->ledger.Held().value());
  CHECK_EQ(region.References(block), 1u);
  peer.Release(block);
  CHECK_EQ(peer.FreeBytes(), free);
}

}  // namespace
}  // namespace envpack::shm
