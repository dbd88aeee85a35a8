#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "peer_region.h"
#include "shm/ledger.h"
#include "shm/region.h"

using envpack::shm::Block;
using envpack::shm::kRecordAlignment;
using envpack::shm::Ledger;
using envpack::shm::Region;
using envpack::test::PeerRegion;

namespace {

constexpr std::size_t kMiB = 1 << 20;
constexpr int kSteps = 100'000, kMostKills = 60;

// A ledger in memory that child processes share.
std::shared_ptr<Ledger> Share() {
  void* memory = mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(memory != MAP_FAILED);
  return {static_cast<Ledger*>(memory), [](Ledger* ledger) { munmap(ledger, sizeof(Ledger)); }};
}

// Runs `before` and `operation` in a child that dies after so many instructions of the operation; -1 for
// never. Returns how many it has run.
int DieIn(const std::function<void()>& before, const std::function<void()>& operation, int instructions) {
  const pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    before();
    raise(SIGSTOP);
    operation();
    _exit(0);
  }
  int status = 0, done = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFSTOPPED(status));
  for (; done != instructions; ++done) {
    CHECK_EQ(ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr), 0);
    waitpid(child, &status, 0);
    if (!WIFSTOPPED(status)) return done;
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return done;
}

// Kills a process at many moments of an operation, and lets its parent take over. The region must be
// consistent and lose nothing. Single steps take time, so a long operation, as with sanitizers, is tried at
// fewer moments.
void KillIn(PeerRegion& peer, std::size_t growth,
            const std::function<void(Region&, std::vector<Block>&)>& before,
            const std::function<void(Region&, std::vector<Block>&)>& operation) {
  const auto ledger = Share();
  Region parent(peer.name(), growth);
  parent.Watch(ledger->undo_log());
  const auto in_use = [&] { return peer.Size() - peer.FreeBytes(); };
  const std::uint64_t expected = in_use();
  const auto try_at = [&](int instructions) {
    std::optional<Region> region;
    std::vector<Block> blocks;
    const auto prepare = [&] {
      region.emplace(peer.name(), growth, ledger.get());
      before(*region, blocks);
    };
    const int done = DieIn(prepare, [&] { operation(*region, blocks); }, instructions);
    parent.CheckAll();
    parent.ReleaseFor(ledger->Held().value());
    ledger->Clear();
    CHECK(peer.IsConsistent());
    CHECK_EQ(in_use(), expected);
    return done;
  };
  const int all = try_at(-1);
  CHECK(all > 100);
  const int kills = std::clamp(2 * kSteps / all, 1, kMostKills);
  for (int kill = 0; kill < kills; ++kill)
    try_at(static_cast<int>(std::int64_t{all} * (2 * kill + 1) / (2 * kills)));
}

// Leaves blocks with free memory on both sides.
void Fragment(Region& region, std::vector<Block>& blocks) {
  for (std::size_t i = 0; i < 40; ++i) blocks.push_back(region.Create(100 + 37 * i));
  for (std::size_t i = 0; i < blocks.size(); i += 2) blocks[i] = Block();
}

constexpr std::size_t kShared = 16 * kMiB;

}  // namespace

CASE(heap_shares_the_region_with_the_servers_allocator) {
  PeerRegion peer(kShared);
  Region region(peer.name(), kMiB);
  const std::uint64_t before = peer.FreeBytes();
  std::mt19937 random(1);
  std::vector<std::pair<Block, std::size_t>> ours;
  std::vector<std::pair<envpack::test::Handle, std::size_t>> theirs;
  const auto check = [](const char* bytes, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) CHECK_EQ(static_cast<std::size_t>(bytes[i]), size % 127);
  };
  for (int round = 0; round < 20000; ++round) {
    const std::size_t size = random() % 5 == 0 ? random() % 40000 : random() % 300;
    switch (random() % 4) {
      case 0:
        ours.emplace_back(random() % 2 == 0 ? region.Create(size) : region.Create(size, kRecordAlignment),
                          size);
        std::memset(ours.back().first.At(0, size), static_cast<int>(size % 127), size);
        break;
      case 1:
        theirs.emplace_back(peer.Create(size), size);
        std::memset(peer.At(theirs.back().first), static_cast<int>(size % 127), size);
        break;
      case 2:
        if (ours.empty()) break;
        std::swap(ours[random() % ours.size()], ours.back());
        check(ours.back().first.At(0, ours.back().second), ours.back().second);
        ours.pop_back();
        break;
      default:
        if (theirs.empty()) break;
        std::swap(theirs[random() % theirs.size()], theirs.back());
        check(peer.At(theirs.back().first), theirs.back().second);
        peer.Release(theirs.back().first);
        theirs.pop_back();
    }
    if (round % 500 == 0) CHECK(peer.IsConsistent());
  }
  ours.clear();
  for (const auto& [handle, size] : theirs) peer.Release(handle);
  CHECK(peer.IsConsistent());
  CHECK_EQ(peer.FreeBytes(), before);
  const Block all = region.Create(before - 64);  // nothing is in pieces
  CHECK_EQ(peer.Size(), kShared);
}

CASE(heap_aligns_what_the_server_aligns) {
  PeerRegion peer;
  Region region(peer.name(), kMiB);
  std::vector<Block> blocks;
  for (std::size_t size = 0; size < 200; ++size) {
    blocks.push_back(region.Create(size, kRecordAlignment));
    CHECK_EQ(blocks.back().handle() % 32, 0);
    blocks.push_back(region.Create(size));
  }
  CHECK(peer.IsConsistent());
}

CASE(heap_survives_a_death_while_it_allocates) {
  PeerRegion peer;
  KillIn(peer, kMiB, Fragment, [](Region& region, auto& blocks) { blocks.push_back(region.Create(150)); });
}

CASE(heap_survives_a_death_while_it_allocates_aligned) {
  PeerRegion peer;
  KillIn(peer, kMiB, Fragment,
         [](Region& region, auto& blocks) { blocks.push_back(region.Create(40, kRecordAlignment)); });
}

CASE(heap_survives_a_death_while_it_frees) {
  PeerRegion peer;
  KillIn(peer, kMiB, Fragment, [](Region&, auto& blocks) { blocks[21] = Block(); });
}

CASE(heap_survives_a_death_while_it_counts) {
  PeerRegion peer;
  const auto handle = peer.Create(64);
  KillIn(peer, kMiB, Fragment, [&](Region& region, auto& blocks) { blocks.push_back(region.Load(handle)); });
  CHECK_EQ(peer.References(handle), 1u);
}

CASE(heap_survives_a_death_while_it_grows) {
  PeerRegion peer;
  const auto fill = [](Region& region, auto& blocks) {
    blocks.push_back(region.Create(region.FreeBytes() - 1024));
  };
  KillIn(peer, 64 * 1024, fill, [](Region& region, auto& blocks) { blocks.push_back(region.Create(5000)); });
}

// What CheckAll() accepts can be used, whatever a model has written to it.
CASE(heap_that_is_overwritten_is_found) {
  PeerRegion peer(kMiB / 4);  // each round copies it, which the thread sanitizer watches byte by byte
  Region region(peer.name(), kMiB);
  std::vector<Block> blocks;
  Fragment(region, blocks);
  region.CheckAll();
  char* base = peer.At(-16);
  const std::string before(base, peer.Size());
  std::mt19937_64 random(1);
  int found = 0;
  for (int round = 0; round < 20000; ++round) {
    constexpr std::size_t kHeader = 56, kFirst = 336, kDamaged = 64 * 1024;  // the lock is between them
    for (std::uint64_t left = 1 + random() % 3; left > 0; --left) {
      const std::uint64_t words[] = {random(), random() % 64, 0, UINT64_MAX, std::uint64_t{1} << 62};
      const std::size_t at = random() % 2 == 0 ? random() % kHeader : kFirst + random() % kDamaged;
      std::memcpy(base + at / 8 * 8, &words[random() % 5], 8);
    }
    try {
      region.CheckAll();
      const Block one = region.Create(random() % 5000), other = region.Create(40, kRecordAlignment);
    } catch (const envpack::shm::CorruptRegion&) {
      ++found;
    }
    std::memcpy(base, before.data(), before.size());
  }
  CHECK(found > 1000);
  region.CheckAll();
}
