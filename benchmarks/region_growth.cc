// Measures how long a stub takes to grow a shared-memory region by one MiB, with the peer of the native tests
// as the server. Prints one line for each size: MiB before, and milliseconds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

#include "peer_region.h"
#include "shm/region.h"

namespace envpack::test {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMiB = 1 << 20;
constexpr int kRounds = 9;

// The median of several growths of a region that is full.
double MillisecondsAt(std::size_t size) {
  PeerRegion peer(size);
  shm::Region region(peer.name(), kMiB);
  const shm::Block full = region.Create(size - 64 * 1024);
  std::memset(full.At(0, size - 64 * 1024), 1, size - 64 * 1024);
  std::vector<shm::Block> blocks;
  std::vector<double> durations;
  for (int round = 0; round < kRounds; ++round) {
    const Clock::time_point start = Clock::now();
    blocks.push_back(region.Create(kMiB - 4096));
    durations.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  std::nth_element(durations.begin(), durations.begin() + kRounds / 2, durations.end());
  return durations[kRounds / 2];
}

}  // namespace

}  // namespace envpack::test

int main() {
  try {
    for (const std::size_t mebibytes : {1, 64, 512}) {
      std::printf("%zu %.3f\n", mebibytes, envpack::test::MillisecondsAt(mebibytes << 20));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "region_growth: %s\n", error.what());
    return 1;
  }
}
