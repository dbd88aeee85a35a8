// Regions that are not what a server of this release makes: the stub says so and ends.
#include <pthread.h>

#include <cstring>
#include <functional>

#include "check.h"
#include "started.h"

using namespace envpack::test;

namespace {

constexpr std::int64_t kFar = std::int64_t{1} << 40;

// The start of the region; a handle points 16 bytes in front of its record.
char* Header(Peer& peer) { return peer.region.At(-16); }

records::Control& Control(Peer& peer) { return *peer.region.As<records::Control>(peer.control); }

// What the stub says when it finds a region damaged like this.
std::string Told(const std::function<void(Peer&)>& damage) {
  Peer peer;
  damage(peer);
  StubProcess stub(peer, WriteModel(kModel));
  CHECK_EQ(stub.Wait(), 1);
  const std::string told = stub.Output();
  CHECK_EQ(told.find('\n'), told.size() - 1);
  CHECK_EQ(told.find("envpack stub: "), 0u);
  return told;
}

}  // namespace

CASE(stub_finds_a_region_without_an_allocator) {
  for (const int byte : {0x00, 0x01, 0xA5, 0xFF}) {
    CHECK_HAS(Told([&](Peer& peer) { std::memset(Header(peer), byte, 300); }),
              "does not begin as a server's does");
    CHECK_HAS(Told([&](Peer& peer) { std::memset(Header(peer), byte, 1 << 20); }),
              "of the release that this stub");
  }
}

CASE(stub_finds_a_region_with_an_absurd_size) {
  const auto total = [](Peer& peer, std::uint64_t value) {
    // The named object's data, of which Boost says where it is; 296 in every region seen.
    std::memcpy(Header(peer) + 296, &value, sizeof(value));
  };
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2} << 20, UINT64_MAX}) {
    CHECK_HAS(Told([&](Peer& peer) { total(peer, value); }),
              "claims to have " + std::to_string(value) + " bytes");
  }
}

CASE(stub_finds_a_region_that_nobody_unlocks) {
  CHECK_HAS(
      Told([](Peer& peer) { pthread_mutex_lock(reinterpret_cast<pthread_mutex_t*>(Header(peer) + 184)); }),
      "cannot be locked");
}

CASE(stub_finds_a_control_record_outside_of_the_region) {
  for (const std::int64_t handle : {std::int64_t{0}, std::int64_t{-16}, std::int64_t{337}, kFar, INT64_MAX}) {
    CHECK_HAS(Told([&](Peer& peer) { peer.control = handle; }),
              "handle " + std::to_string(handle) + " does not lie");
  }
  CHECK_HAS(Told([](Peer& peer) {
              peer.control = (1 << 20) - 32;
              *peer.region.As<std::uint32_t>(peer.control, -16) = 1;  // as if a block were there
            }),
            "beyond the end of the shared memory region");
}

CASE(stub_finds_a_queue_outside_of_the_region) {
  for (Handle records::Control::* queue :
       {&records::Control::stub_message_queue, &records::Control::parent_message_queue,
        &records::Control::stub_to_parent_mq, &records::Control::parent_to_stub_mq}) {
    CHECK_HAS(Told([&](Peer& peer) { Control(peer).*queue = kFar; }),
              "does not lie in the shared memory region");
    CHECK_HAS(Told([&](Peer& peer) { Control(peer).*queue = (1 << 20) - 64; }),
              "there is no block at handle");
  }
}

CASE(stub_finds_a_queue_with_an_absurd_number_of_slots) {
  for (const std::uint64_t slots :
       {std::uint64_t{0}, std::uint64_t{1} << 20, std::uint64_t{1} << 61, UINT64_MAX}) {
    CHECK_HAS(Told([&](Peer& peer) {
                const std::size_t at = peer.layouts.Of("Queue").fields.at("size");
                *peer.region.As<std::uint64_t>(Control(peer).stub_message_queue, at) = slots;
              }),
              "claims " + std::to_string(slots) + " slots");
  }
}
