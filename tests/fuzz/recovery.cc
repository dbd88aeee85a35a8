// Damages what a model's process shares with the front, at random, and lets the front take over from it:
//   fuzz_recovery [SECONDS [SEED]]
// The front may give up with a reason. It must not crash, nor wait for ever. The messages of each round are
// open between a worker and a server, which this process plays.
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "abi/journal.h"
#include "abi/wire.h"
#include "base/descriptor.h"
#include "front/recovery/deputy.h"
#include "front/recovery/take_over.h"
#include "peer.h"

using namespace envpack;

namespace {

using Clock = std::chrono::steady_clock;
using Dice = std::mt19937_64;
using std::chrono::milliseconds;
using test::Peer;

constexpr abi::Release kReleases[] = {2304, 2312, 2406, 2410, 2603};
constexpr std::chrono::seconds kLongest(150);
constexpr int kRecovered = 0, kGaveUp = 10;
constexpr std::size_t kRegion = 1 << 16;
constexpr useconds_t kHeadStart = 2000;  // of the front: the server must not find an abandoned lock first

class NoGpu final : public abi::GpuMemory {
 public:
  void AttachPool(std::int64_t, const abi::IpcHandle&) override {}
  std::shared_ptr<void> Open(const abi::DeviceMemory&) override { return nullptr; }
  void Copy(std::int64_t, void*, const void*, std::size_t) override {}
};

abi::Launch LaunchFor(Peer& peer) {
  abi::Launch launch;
  launch.region = peer.region.name();
  launch.region_growth = kRegion;
  launch.control_handle = peer.control;
  launch.name = "model";
  return launch;
}

Peer::Options OptionsFor(abi::Release release) {
  Peer::Options options;
  options.release = release;
  options.size = kRegion;
  options.slots = 32;
  return options;
}

// What one process waits for until another one opens it.
class Gate {
 public:
  void Open() const { static_cast<void>(eventfd_write(event_.number(), 1)); }
  void Await() const {
    eventfd_t value;
    static_cast<void>(eventfd_read(event_.number(), &value));
  }

 private:
  const Descriptor event_{eventfd(0, EFD_CLOEXEC)};
};

// Memory that is damaged: mostly near its start, where the notes of a short life are.
struct Target {
  char* begin;
  std::size_t size;
};

void Damage(const Target& target, Dice& dice) {
  const std::size_t near = dice() % 2 == 0 ? std::min<std::size_t>(target.size, 256) : target.size;
  if (dice() % 16 == 0) {
    const std::size_t at = dice() % near;
    const int bytes[] = {0, 0xFF, static_cast<int>(dice() % 256)};
    std::memset(target.begin + at, bytes[dice() % 3], dice() % (target.size - at) + 1);
    return;
  }
  for (std::uint64_t left = 1 + dice() % 4; left > 0; --left) {
    const std::uint64_t values[] = {0,
                                    1,
                                    UINT64_MAX,
                                    UINT32_MAX,
                                    INT64_MAX,
                                    dice(),
                                    dice() % kRegion / 16 * 16,
                                    dice() % 256,
                                    std::uint64_t{1} << dice() % 64};
    const std::size_t size = dice() % 2 == 0 ? 4 : 8;
    std::memcpy(target.begin + dice() % (near - 7) / size * size, &values[dice() % std::size(values)], size);
  }
}

std::vector<Target> TargetsIn(Peer& peer, abi::Journal& journal) {
  const auto part = [&](auto& member, std::size_t most) {
    return Target{reinterpret_cast<char*>(&member), std::min(sizeof(member), most)};
  };
  auto* notes = reinterpret_cast<char*>(&journal.ledger) + sizeof(shm::UndoLog);
  return {{reinterpret_cast<char*>(&journal), offsetof(abi::Journal, exchanges)},
          part(journal.exchanges, 512),
          {reinterpret_cast<char*>(&journal.used_requests), 8},
          part(journal.requests, 512),
          part(journal.ledger, 512),
          {notes, 512},
          {reinterpret_cast<char*>(&journal), sizeof(journal)},
          {peer.region.At(-16), peer.region.Size()}};
}

// A worker that has taken its batch, has several messages open, and dies.
[[noreturn]] void Work(Peer& peer, const abi::Launch& launch, abi::Release release,
                       const std::shared_ptr<abi::Journal>& journal, Dice dice) {
  static NoGpu gpu;
  static const auto wire = abi::OpenWire(launch, release, gpu, journal);
  const abi::Command command = wire->Receive();
  const auto& requests = std::get<abi::ExecuteCommand>(command).requests;
  const std::size_t messages = dice() % 3;
  for (std::size_t i = 0; i < messages; ++i) {
    const bool asks_another = release >= 2410 && dice() % 2 == 0;
    std::thread([&requests, asks_another] {
      if (asks_another) {
        wire->Infer(requests.front(), false);
      } else {
        wire->Log({abi::LogLevel::kInfo, "a line", "model.py", 1});
      }
    }).detach();
  }
  const auto are_sent = [&] {
    std::size_t sent = 0;
    for (const abi::Exchange& each : journal->exchanges) sent += each.pushed;
    return sent == messages;
  };
  while (!are_sent()) usleep(100);
  const auto targets = TargetsIn(peer, *journal);
  static shm::Region region(launch.region, kRegion, &journal->ledger);
  if (dice() % 8 == 0) new shm::RegionLock(region);  // it dies with the lock
  if (dice() % 32 != 0) Damage(targets[dice() % targets.size()], dice);
  if (dice() % 4 == 0) Damage(targets[dice() % targets.size()], dice);
  _exit(0);
}

[[noreturn]] void ServeUntilKilled(Peer& peer) {
  const auto forever = [](auto serve) {
    std::thread([serve] {
      try {
        for (;;) serve();
      } catch (const std::exception&) {
        pause();
      }
    }).detach();
  };
  forever([&] { peer.TakeExecute(); });
  forever([&] {
    if (peer.NextRequestIs("LogRequest")) {
      peer.TakeLog();
    } else if (peer.NextRequestIs("ResponseSend")) {
      peer.TakeSent();
    } else if (peer.NextRequestIs("InferExecRequest")) {
      peer.ServeInfer({});
    } else {
      peer.TakeFactoryCleanup();
    }
  });
  for (;;) pause();
}

[[noreturn]] void TakeOverFrom(const abi::Launch& launch, abi::Release release, abi::Journal& journal,
                               Gate& has_attached, Gate& has_died) {
  try {
    front::Deputy deputy(launch, release);
    deputy.region().Watch(journal.ledger.undo_log());
    has_attached.Open();
    has_died.Await();
    front::TakeOver take_over(deputy, journal, "it died");
    for (int tick = 0; tick < 1000 && !take_over.Advance(); ++tick) usleep(1000);
    take_over.GiveBack();
    _exit(kRecovered);
  } catch (const std::exception& error) {
    std::printf("  gave up: %s\n", error.what());
    std::fflush(stdout);
    _exit(kGaveUp);
  }
}

template <typename Work>
pid_t Fork(const Work& work) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) work();
  return pid;
}

// The status of waitpid(); -1 if the process does not end.
int Await(pid_t pid) {
  const auto limit = Clock::now() + kLongest;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (Clock::now() > limit) return -1;
    usleep(200);
  }
  return status;
}

void End(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

// Returns how the front ended.
int Play(std::uint64_t seed) {
  Dice dice(seed);
  const abi::Release release = kReleases[dice() % std::size(kReleases)];
  Peer peer(OptionsFor(release));
  abi::JournalFile file;
  const auto journal = file.journal();
  const abi::Launch launch = LaunchFor(peer);
  test::PeerRequest request;
  request.inputs = {{"IN", 11, {2}, std::string(8, 'x')}};
  peer.SendExecute(std::vector<test::PeerRequest>(1 + dice() % 3, request));
  Gate has_attached, has_died;
  const pid_t front = Fork([&] { TakeOverFrom(launch, release, *journal, has_attached, has_died); });
  has_attached.Await();
  Await(Fork([&] { Work(peer, launch, release, journal, dice); }));
  has_died.Open();
  usleep(kHeadStart);
  const pid_t server = Fork([&] { ServeUntilKilled(peer); });
  const int status = Await(front);
  if (status == -1) End(front);
  End(server);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  const auto until = Clock::now() + std::chrono::seconds(argc > 1 ? std::atoi(argv[1]) : 60);
  std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::random_device()();
  std::map<int, std::size_t> counts;
  bool has_finding = false;
  do {
    const auto begun = Clock::now();
    const int status = Play(seed);
    ++counts[status];
    const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - begun).count();
    if (took > 20'000) std::printf("  seed %lu took %ld ms\n", seed, static_cast<long>(took));
    if (status == -1 || !WIFEXITED(status) ||
        (WEXITSTATUS(status) != kRecovered && WEXITSTATUS(status) != kGaveUp)) {
      std::printf("FINDING: seed %lu: the front %s (%d)\n", seed,
                  status == -1 ? "does not end" : "ended wrongly", status);
      has_finding = true;
    }
    ++seed;
  } while (Clock::now() < until);
  std::printf("%zu recovered, %zu gave up with a reason; the next seed is %lu\n", counts[0],
              counts[kGaveUp << 8], seed);
  return has_finding ? 1 : 0;
}
