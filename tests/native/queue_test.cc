#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>

#include "check.h"
#include "peer.h"
#include "shm/queue.h"
#include "shm/region.h"

using envpack::shm::Queue;
using envpack::shm::Region;
using envpack::test::PeerQueue;
using envpack::test::PeerRegion;

namespace {

constexpr std::size_t kMiB = 1 << 20;

}  // namespace

CASE(queue_keeps_the_order) {
  PeerRegion peer;
  PeerQueue theirs(peer, 10);
  Region region(peer.name(), kMiB);
  Queue ours(region, theirs.handle());
  for (const std::int64_t value : {INT64_MAX, std::int64_t{0}, INT64_MIN, std::int64_t{336}})
    ours.Push(value);
  CHECK_EQ(theirs.Pop(), INT64_MAX);
  CHECK_EQ(theirs.Pop(), 0);
  CHECK_EQ(theirs.Pop(), INT64_MIN);
  CHECK_EQ(theirs.Pop(), 336);
  CHECK(!theirs.TryPop(0));
}

CASE(queue_keeps_a_value_that_was_only_looked_for) {
  PeerRegion peer;
  PeerQueue theirs(peer, 3);
  Region region(peer.name(), kMiB);
  Queue ours(region, theirs.handle());
  theirs.Push(7);
  for (int times = 0; times < 2; ++times) CHECK(ours.HasValueWithin(std::chrono::milliseconds(0)));
  CHECK_EQ(ours.Pop(), 7);
  CHECK(!ours.HasValueWithin(std::chrono::milliseconds(0)));
}

// Servers have 1000 slots by default, and shm_message_queue_size sets others.
CASE(queue_counts_more_entries_than_16_bits_hold) {
  PeerRegion peer;
  PeerQueue theirs(peer, 70000);
  Region region(peer.name(), kMiB);
  Queue ours(region, theirs.handle());
  for (std::int64_t value = 0; value < 66000; ++value) theirs.Push(value);
  CHECK_EQ(ours.Settle(0), 0u);  // the entries agree with the semaphores
}

CASE(queue_wraps_around) {
  PeerRegion peer;
  PeerQueue theirs(peer, 3);
  Region region(peer.name(), kMiB);
  Queue ours(region, theirs.handle());
  for (std::int64_t value = 0; value < 20; value += 2) {
    theirs.Push(value);
    theirs.Push(value + 1);
    CHECK_EQ(ours.Pop(), value);
    CHECK_EQ(ours.Pop(), value + 1);
  }
}

CASE(queue_blocks_while_it_is_full_or_empty_across_processes) {
  PeerRegion peer;
  PeerQueue numbers(peer, 4);
  PeerQueue sums(peer, 1);
  const std::string name = peer.name();
  const auto first = numbers.handle();
  const auto second = sums.handle();
  const pid_t child = fork();
  if (child == 0) {
    Region region(name, kMiB);
    Queue in(region, first);
    Queue out(region, second);
    std::int64_t sum = 0;
    for (std::int64_t expected = 1; expected <= 5000; ++expected) {
      const std::int64_t value = in.Pop();
      if (value != expected) _exit(2);
      out.Push(sum += value);
    }
    _exit(0);
  }
  std::thread feeder([&] {
    for (std::int64_t value = 1; value <= 5000; ++value) numbers.Push(value);
  });
  std::int64_t sum = 0;
  bool right = true;
  for (std::int64_t value = 1; value <= 5000; ++value) right = sums.Pop() == (sum += value) && right;
  feeder.join();
  int status = -1;
  waitpid(child, &status, 0);
  CHECK_EQ(status, 0);
  CHECK(right);
}

CASE(queue_push_waits_for_room) {
  PeerRegion peer;
  PeerQueue theirs(peer, 2);
  Region region(peer.name(), kMiB);
  Queue ours(region, theirs.handle());
  ours.Push(1);
  ours.Push(2);
  const auto third = std::async(std::launch::async, [&] { ours.Push(3); });
  CHECK(third.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  CHECK_EQ(theirs.Pop(), 1);
  third.wait();
  CHECK_EQ(theirs.Pop(), 2);
  CHECK_EQ(theirs.Pop(), 3);
}

CASE(queue_without_slots_is_rejected) {
  PeerRegion peer;
  PeerQueue theirs(peer, 4);
  Region region(peer.name(), kMiB);
  *peer.As<std::uint64_t>(theirs.handle(), 104) = 0;
  CHECK_HAS(THROWN(envpack::shm::CorruptRegion, Queue(region, theirs.handle())), "claims 0 slots");
  // The sizes in bytes of the last ones are 0 and -8 in 64 bits.
  for (const std::uint64_t slots : {1ull << 40, 1ull << 61, ~0ull}) {
    *peer.As<std::uint64_t>(theirs.handle(), 104) = slots;
    CHECK_HAS(THROWN(envpack::shm::CorruptRegion, Queue(region, theirs.handle())), "slots");
  }
  *peer.As<std::uint64_t>(theirs.handle(), 104) = (1 << 20) / 8;
  CHECK_HAS(THROWN(envpack::shm::CorruptRegion, Queue(region, theirs.handle())), "beyond the end");
}

CASE(queue_wraps_positions_that_the_server_has_damaged) {
  PeerRegion peer;
  PeerQueue theirs(peer, 4);
  Region region(peer.name(), kMiB);
  Queue ours(region, theirs.handle());
  auto* positions = peer.As<std::uint32_t>(theirs.handle(), 120);  // head and tail
  positions[0] = positions[1] = 0x40000003;
  for (const std::int64_t value : {7, 8, 9}) ours.Push(value);
  for (const std::int64_t value : {7, 8, 9}) CHECK_EQ(ours.Pop(), value);
  CHECK_EQ(positions[0], 2u);
  CHECK_EQ(positions[1], 2u);
}

CASE(queue_waits_on_after_a_signal) {
  struct sigaction interrupt{};
  interrupt.sa_handler = [](int) {};
  sigaction(SIGUSR1, &interrupt, nullptr);
  PeerRegion peer;
  PeerQueue theirs(peer, 1);
  Region region(peer.name(), kMiB);
  Queue ours(region, theirs.handle());
  pthread_t waiting = pthread_self();
  std::promise<void> started;
  auto value = std::async(std::launch::async, [&] {
    waiting = pthread_self();
    started.set_value();
    return ours.Pop();
  });
  started.get_future().wait();
  for (int i = 0; i < 20; ++i) {
    pthread_kill(waiting, SIGUSR1);
    CHECK(value.wait_for(std::chrono::milliseconds(1)) == std::future_status::timeout);
  }
  theirs.Push(5);
  CHECK_EQ(value.get(), 5);
}
