// Damaged regions and regions of other releases: the stub reports them and exits.
#include <pthread.h>

#include <cstring>
#include <functional>

#include "check.h"
#include "running_stub.h"

using namespace envpack::test;

namespace {

constexpr std::int64_t kFar = std::int64_t{1} << 40;

// The start of the region. At() adds the 16 bytes of a block's prefix.
char* Header(Peer& peer) { return peer.region.At(-16); }

records::Control& Control(Peer& peer) { return *peer.region.As<records::Control>(peer.control); }

// The stub's error message for this region.
std::string ErrorOf(Peer& peer) {
  StubProcess stub(peer, WriteModel(kModel));
  CHECK_EQ(stub.Wait(), 1);
  const std::string error = stub.Output();
  CHECK_EQ(error.find('\n'), error.size() - 1);
  CHECK_EQ(error.find("envpack stub: "), 0u);
  return error;
}

// The same for a region with this damage.
std::string ErrorFor(const std::function<void(Peer&)>& damage) {
  Peer peer;
  damage(peer);
  return ErrorOf(peer);
}

}  // namespace

CASE(stub_rejects_a_region_without_an_allocator) {
  for (const int byte : {0x00, 0x01, 0xA5, 0xFF}) {
    CHECK_HAS(ErrorFor([&](Peer& peer) { std::memset(Header(peer), byte, 300); }), "has no valid header");
    CHECK_HAS(ErrorFor([&](Peer& peer) { std::memset(Header(peer), byte, 1 << 20); }),
              "of another release than the stub assumes");
  }
}

CASE(stub_rejects_a_region_with_an_invalid_size) {
  const auto total = [](Peer& peer, std::uint64_t value) {
    // The offset of the named object's data, as returned by Boost in every region.
    std::memcpy(Header(peer) + 296, &value, sizeof(value));
  };
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2} << 20, UINT64_MAX}) {
    CHECK_HAS(ErrorFor([&](Peer& peer) { total(peer, value); }),
              "claims a size of " + std::to_string(value) + " bytes");
  }
}

CASE(stub_rejects_a_region_that_stays_locked) {
  Peer peer;
  pthread_mutex_lock(peer.region.mutex());
  const std::string error = ErrorOf(peer);
  // glibc lists the robust mutexes that a thread holds, so none may be unmapped.
  pthread_mutex_unlock(peer.region.mutex());
  CHECK_HAS(error, "cannot be locked");
}

CASE(stub_rejects_a_control_record_outside_the_region) {
  for (const std::int64_t handle : {std::int64_t{0}, std::int64_t{-16}, std::int64_t{337}, kFar, INT64_MAX}) {
    CHECK_HAS(ErrorFor([&](Peer& peer) { peer.control = handle; }),
              "handle " + std::to_string(handle) + " lies outside");
  }
  CHECK_HAS(ErrorFor([](Peer& peer) { peer.control = (1 << 20) - 32; }), "there is no block at handle");
}

CASE(stub_rejects_what_looks_like_the_counter_of_a_block) {
  const Handle inside_of_a_block = 16, in_free_memory = (1 << 20) - 1024;
  for (const bool is_inside : {true, false}) {
    CHECK_HAS(ErrorFor([&](Peer& peer) {
                peer.control = is_inside ? peer.control + inside_of_a_block : in_free_memory;
                *peer.region.As<std::uint32_t>(peer.control, -16) = 1;
              }),
              "there is no block at handle");
  }
}

CASE(stub_rejects_a_queue_outside_the_region) {
  for (Handle records::Control::* queue :
       {&records::Control::stub_message_queue, &records::Control::parent_message_queue,
        &records::Control::stub_to_parent_mq, &records::Control::parent_to_stub_mq}) {
    CHECK_HAS(ErrorFor([&](Peer& peer) { Control(peer).*queue = kFar; }),
              "lies outside the shared memory region");
    CHECK_HAS(ErrorFor([&](Peer& peer) { Control(peer).*queue = (1 << 20) - 64; }),
              "there is no block at handle");
  }
}

CASE(stub_rejects_a_queue_with_an_invalid_number_of_slots) {
  for (const std::uint64_t slots :
       {std::uint64_t{0}, std::uint64_t{1} << 20, std::uint64_t{1} << 61, UINT64_MAX}) {
    CHECK_HAS(ErrorFor([&](Peer& peer) {
                const std::size_t at = peer.layouts.Of("Queue").fields.at("size");
                *peer.region.As<std::uint64_t>(Control(peer).stub_message_queue, at) = slots;
              }),
              "claims " + std::to_string(slots) + " slots");
  }
}
