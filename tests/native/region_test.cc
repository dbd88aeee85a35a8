#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <vector>

#include "base/forks.h"
#include "check.h"
#include "peer.h"
#include "shm/region.h"

using envpack::shm::Block;
using envpack::shm::CorruptRegion;
using envpack::shm::kRecordAlignment;
using envpack::shm::Region;
using envpack::shm::RegionFull;
using envpack::shm::RegionLock;
using envpack::shm::RegionPause;
using envpack::shm::ReleaseTogether;
using envpack::test::Peer;
using envpack::test::PeerRegion;

namespace {

constexpr std::size_t kMiB = 1 << 20;

std::string PathOf(const PeerRegion& peer) { return "/dev/shm/" + peer.name(); }

// Bytes of the region's object that have pages.
std::size_t Reserved(const PeerRegion& peer) {
  struct stat facts{};
  CHECK_EQ(stat(PathOf(peer).c_str(), &facts), 0);
  return static_cast<std::size_t>(facts.st_blocks) * 512;
}

// Bytes of address space in which this process sees the region.
std::size_t Mapped(const PeerRegion& peer) {
  std::ifstream maps("/proc/self/maps");
  std::size_t bytes = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(peer.name()) == std::string::npos) continue;
    const std::size_t dash = line.find('-');
    bytes += std::stoull(line.substr(dash + 1), nullptr, 16) - std::stoull(line.substr(0, dash), nullptr, 16);
  }
  return bytes;
}

// Runs `body` in a child process, so that limits and crashes do not affect this one. Returns its status from
// waitpid().
int InChild(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "in the child: %s\n", error.what());
      _exit(1);
    }
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

}  // namespace

CASE(region_of_the_peer_has_the_servers_layout) {
  Peer peer;
  CHECK_EQ(peer.control, 336);
  CHECK(peer.region.IsConsistent());
  // The free bytes of an idle instance of the real server.
  CHECK_EQ(peer.region.FreeBytes(), 1007136u);
}

CASE(region_that_does_not_exist_is_reported) {
  CHECK_HAS(THROWN(std::system_error, Region("envpack_native_nowhere", kMiB)), "envpack_native_nowhere");
}

CASE(region_block_has_one_reference_at_first) {
  PeerRegion peer;
  Region region(peer.name(), kMiB);
  const Block block = region.Create(100);
  CHECK_EQ(peer.References(block.handle()), 1u);
  CHECK_EQ(block.handle() % 16, 0);
}

CASE(region_load_adds_a_reference_and_release_drops_it) {
  PeerRegion peer;
  Region region(peer.name(), kMiB);
  const envpack::test::Handle handle = peer.Create(64);
  std::strcpy(peer.At(handle), "from the server");
  {
    const Block first = region.Load(handle);
    Block second = region.Load(handle);
    CHECK_EQ(peer.References(handle), 3u);
    CHECK_EQ(std::string(first.At(0, 16)), "from the server");
    second = Block();
    CHECK_EQ(peer.References(handle), 2u);
    const Block moved = std::move(second);
    CHECK(!moved);
  }
  CHECK_EQ(peer.References(handle), 1u);
}

CASE(region_block_lives_until_the_last_reference_is_dropped) {
  PeerRegion peer;
  Region region(peer.name(), kMiB);
  const std::uint64_t before = peer.FreeBytes();
  Block ours = region.Create(1000);
  const auto handle = ours.handle();
  peer.AddReference(handle);
  ours = Block();
  CHECK(peer.FreeBytes() < before);
  CHECK_EQ(peer.References(handle), 1u);
  peer.Release(handle);
  CHECK_EQ(peer.FreeBytes(), before);
}

CASE(region_frees_all_bytes_of_dropped_blocks) {
  PeerRegion peer;
  Region region(peer.name(), kMiB);
  const std::uint64_t before = region.FreeBytes();
  CHECK_EQ(before, peer.FreeBytes());
  for (int round = 0; round < 50; ++round) {
    std::vector<Block> blocks;
    for (std::size_t size = 0; size < 3000; size += 61) {
      blocks.push_back(size % 2 == 0 ? region.Create(size) : region.Create(size, kRecordAlignment));
      std::memset(blocks.back().At(0, size), 0xFF, size);
    }
    blocks.erase(blocks.begin() + 10, blocks.begin() + 20);
  }
  CHECK_EQ(region.FreeBytes(), before);
  CHECK(peer.IsConsistent());
}

CASE(region_grows_in_steps_and_the_peer_can_read_it) {
  PeerRegion peer;
  Region region(peer.name(), kMiB);
  Block large = region.Create(5 * kMiB + 1);
  CHECK_EQ(peer.Size(), 7 * kMiB);
  std::memset(large.At(0, 5 * kMiB + 1), 'x', 5 * kMiB + 1);
  CHECK_EQ(*(peer.At(large.handle()) + 5 * kMiB), 'x');
  CHECK(peer.IsConsistent());
  large = Block();
  CHECK(peer.FreeBytes() > 6 * kMiB);
}

CASE(region_follows_when_the_peer_has_grown_it) {
  PeerRegion peer;
  Region region(peer.name(), kMiB);
  const Block old = region.Create(16);
  std::memcpy(old.At(0, 4), "old", 4);
  peer.Grow(4 * kMiB);
  const auto handle = peer.Create(3 * kMiB);
  std::memset(peer.At(handle), 'p', 3 * kMiB);
  const Block seen = region.Load(handle);
  CHECK_EQ(*seen.At(3 * kMiB - 1, 1), 'p');
  CHECK_EQ(std::string(old.At(0, 4)), "old");
  CHECK_EQ(region.FreeBytes(), peer.FreeBytes());
}

CASE(region_grows_alternately_from_both_sides) {
  PeerRegion peer;
  Region region(peer.name(), kMiB);
  std::vector<Block> blocks;
  for (int round = 1; round <= 8; ++round) {
    blocks.push_back(region.Create(kMiB));
    std::memset(blocks.back().At(0, kMiB), round, kMiB);
    peer.Grow(kMiB);
  }
  for (int round = 1; round <= 8; ++round) {
    CHECK_EQ(static_cast<int>(*peer.At(blocks[round - 1].handle(), kMiB - 1)), round);
  }
  blocks.clear();
  CHECK(peer.IsConsistent());
  CHECK_EQ(region.FreeBytes(), peer.FreeBytes());
}

CASE(region_grows_in_place) {
  PeerRegion peer;
  Region region(peer.name(), kMiB);
  const Block first = region.Create(16);
  const std::size_t others = Mapped(peer) - kMiB;  // the peer's own
  std::vector<Block> blocks;
  for (int round = 0; round < 20; ++round) blocks.push_back(region.Create(kMiB));
  CHECK_EQ(Mapped(peer), others + 21 * kMiB);
  CHECK(region.Load(first.handle()).At(0, 16) == first.At(0, 16));
  CHECK_EQ(Mapped(peer), others + 21 * kMiB);
}

CASE(region_reserves_only_the_pages_that_it_adds) {
  PeerRegion peer(8 * kMiB);
  Region region(peer.name(), kMiB);
  // A hole in free memory: filling it again would show that all pages were visited.
  const int descriptor = open(PathOf(peer).c_str(), O_RDWR | O_CLOEXEC);
  CHECK_EQ(fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4 * kMiB, kMiB), 0);
  close(descriptor);
  const std::size_t before = Reserved(peer);
  CHECK_EQ(before, 7 * kMiB);
  const Block large = region.Create(8 * kMiB);
  CHECK_EQ(Reserved(peer), before + peer.Size() - 8 * kMiB);
}

CASE(region_that_outgrows_its_address_space_is_mapped_again) {
  PeerRegion peer;
  const int status = InChild([&] {
    // Room for a few megabytes only.
    std::ifstream statm("/proc/self/statm");
    std::size_t pages = 0;
    statm >> pages;
    if (pages > (std::size_t{1} << 28)) return;  // a sanitizer has taken a terabyte
    const rlim_t space = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + 64 * kMiB;
    const rlimit limit{space, space};
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    Region region(peer.name(), kMiB);
    const Block old = region.Create(16);
    std::memcpy(old.At(0, 4), "old", 4);
    const Block large = region.Create(space / 8 + kMiB);
    std::memset(large.At(0, space / 8), 1, space / 8);
    CHECK_EQ(std::string(old.At(0, 4)), "old");
    const Block again = region.Load(old.handle());
    CHECK(again.At(0, 4) != old.At(0, 4));
    std::memcpy(again.At(0, 4), "new", 4);
    CHECK_EQ(std::string(old.At(0, 4)), "new");
  });
  CHECK_EQ(status, 0);
}

CASE(region_that_cannot_grow_is_reported_and_stays_usable) {
  PeerRegion peer;
  const std::string name = peer.name();
  const int status = InChild([&] {
    Region region(name, kMiB);
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{3 * kMiB, 3 * kMiB};
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const std::uint64_t free = region.FreeBytes();
    const std::string text = THROWN(RegionFull, region.Create(8 * kMiB));
    CHECK_HAS(text, "Failed to increase the shared memory pool size for key '" + name + "' to ");
    CHECK_HAS(text, "File too large");
    CHECK_EQ(region.FreeBytes(), free);
    const Block small = region.Create(1000);
    const Block fits = region.Create(kMiB + 100);
    std::memset(fits.At(0, kMiB), 1, kMiB);
  });
  CHECK_EQ(status, 0);
  CHECK_EQ(peer.Size(), 3 * kMiB);
  CHECK(peer.IsConsistent());
}

CASE(region_rejects_handles_outside) {
  PeerRegion peer;
  Region region(peer.name(), kMiB);
  const auto size = static_cast<envpack::shm::Handle>(peer.Size());
  for (const envpack::shm::Handle handle :
       {envpack::shm::Handle{0}, envpack::shm::Handle{-16}, size, size + 16, size - 15, INT64_MAX, INT64_MIN,
        envpack::shm::Handle{337}}) {
    CHECK_HAS(THROWN(CorruptRegion, region.Load(handle)), std::to_string(handle));
  }
}

CASE(region_rejects_handles_without_a_block) {
  PeerRegion peer;
  Region region(peer.name(), kMiB);
  const auto handle = peer.Create(64);
  for (const std::uint32_t references : {0u, UINT32_MAX}) {
    *peer.As<std::uint32_t>(handle, -16) = references;
    CHECK_HAS(THROWN(CorruptRegion, region.Load(handle)), "no block at handle " + std::to_string(handle));
    CHECK_EQ(peer.References(handle), references);
  }
}

CASE(region_read_budget_ends_reading_the_same_memory_again) {
  Peer peer;
  Region region(peer.region.name(), kMiB);
  const auto handle = peer.region.Create(kMiB / 2);
  const auto read = [&] { region.Load(handle).At(0, kMiB / 2); };
  for (int i = 0; i < 20; ++i) read();
  for (int round = 0; round < 2; ++round) {
    const envpack::shm::ReadBudget budget(region);
    for (int i = 0; i < 7; ++i) read();
    CHECK_HAS(THROWN(CorruptRegion, read()), "over and over");
  }
  read();
}

CASE(region_block_ends_at_the_end_of_the_region) {
  PeerRegion peer;
  Region region(peer.name(), kMiB);
  const Block loaded = region.Load(peer.Create(64));
  THROWN(CorruptRegion, loaded.At(0, kMiB));
  THROWN(CorruptRegion, loaded.At(SIZE_MAX, 1));
  THROWN(CorruptRegion, loaded.At(1, SIZE_MAX));
  const Block made = region.Create(10);
  made.At(0, 10);
  THROWN(CorruptRegion, made.At(1, 10));
  THROWN(CorruptRegion, Block().At(0, 0));
}

CASE(region_without_memory_is_rejected) {
  const std::string name = "envpack_native_" + std::to_string(getppid()) + "_empty";
  close(shm_open(("/" + name).c_str(), O_CREAT | O_RDWR, 0600));
  const std::string error = THROWN(std::system_error, Region(name, kMiB));
  shm_unlink(("/" + name).c_str());
  CHECK_HAS(error, name);
}

CASE(region_pause_lets_others_use_the_region) {
  PeerRegion peer;
  Region region(peer.name(), kMiB);
  const RegionLock lock(region);
  const RegionLock nested(region);
  const auto from_another_thread = [&] {
    return std::async(std::launch::async, [&] { return peer.Create(64); }).get();
  };
  {
    const RegionPause pause;
    from_another_thread();
    const Block ours = region.Create(16);
    const RegionPause nothing_to_unlock;
    from_another_thread();
  }
}

CASE(region_blocks_dropped_together_are_released_at_the_end) {
  PeerRegion peer;
  Region region(peer.name(), kMiB);
  const std::uint64_t before = peer.FreeBytes();
  {
    const ReleaseTogether together;
    {
      const ReleaseTogether nested;
      for (int i = 0; i < 10; ++i) region.Create(1000);
      Block kept = region.Create(2000);
      kept = Block();
    }
    CHECK(peer.FreeBytes() < before - 2000);
  }
  CHECK_EQ(peer.FreeBytes(), before);
}

CASE(region_blocks_dropped_together_make_room_before_it_grows) {
  PeerRegion peer;
  Region region(peer.name(), kMiB);
  const ReleaseTogether together;
  for (int i = 0; i < 10; ++i) region.Create(kMiB / 2);
  CHECK_EQ(peer.Size(), kMiB);
}

CASE(region_blocks_dropped_together_are_not_released_by_a_forked_process) {
  envpack::forks::Watch();
  PeerRegion peer;
  Region region(peer.name(), kMiB);
  const Block kept = region.Create(64);
  {
    const ReleaseTogether together;
    {
      const Block again = region.Load(kept.handle());
    }
    CHECK_EQ(InChild([&] { region.FreeBytes(); }), 0);
    CHECK_EQ(peer.References(kept.handle()), 2u);
  }
  CHECK_EQ(peer.References(kept.handle()), 1u);
}
