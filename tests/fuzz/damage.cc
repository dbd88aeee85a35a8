#include "damage.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "scenarios.h"

namespace envpack::fuzz {

namespace {

// Numbers that overflow, wrap around, or lie next to a boundary.
constexpr std::uint64_t kNumbers[] = {0,          1,         0xFF,       0xFFFF,     0x7FFFFFFF, 0x80000000,
                                      UINT32_MAX, INT64_MAX, UINT64_MAX, 1ULL << 61, 1ULL << 40, 65536 - 16};

// More than the number of scenarios, so that a new one does not change the meaning of existing inputs.
constexpr std::size_t kNone = 32;

// A scenario whose message is written once and damaged repeatedly.
class Target {
 public:
  explicit Target(const Scenario& scenario) : scenario_(scenario), stage_(scenario.release) {
    const std::size_t before = stage_.peer.region.made().size();
    handle_ = scenario.write(stage_);
    const auto& made = stage_.peer.region.made();
    for (auto block = made.begin() + static_cast<std::ptrdiff_t>(before); block != made.end(); ++block) {
      parts_.push_back({block->handle, -16, block->size + 16});
    }
    if (scenario.parts != nullptr) parts_ = scenario.parts(stage_);
    for (const Part& part : parts_) damageable_ += part.size;
    clean_.assign(stage_.peer.region.At(-16), stage_.peer.region.Size());
  }

  void Restore() { std::memcpy(stage_.peer.region.At(-16), clean_.data(), clean_.size()); }
  void Read() { scenario_.read(stage_, handle_); }

  // Overwrites damageable bytes from the `where`-th on, up to the end of their part.
  void Write(std::size_t where, const void* data, std::size_t size) {
    where %= damageable_;
    for (const Part& part : parts_) {
      if (where < part.size) {
        char* to = stage_.peer.region.At(part.handle) + part.from + static_cast<std::ptrdiff_t>(where);
        std::memcpy(to, data, std::min(size, part.size - where));
        return;
      }
      where -= part.size;
    }
  }

  // A block of the message, so that handles can refer to records of other types, or to themselves.
  Handle SomeBlock(std::uint8_t number) const { return parts_[number % parts_.size()].handle; }

 private:
  const Scenario& scenario_;
  Stage stage_;
  Handle handle_;
  std::vector<Part> parts_;
  std::size_t damageable_ = 0;
  std::string clean_;
};

Target& TargetOf(std::size_t number) {
  static std::map<std::size_t, std::unique_ptr<Target>> targets;
  auto& target = targets[number];
  if (!target) target = std::make_unique<Target>(kScenarios[number]);
  return *target;
}

// Applies the edits in the input.
void Damage(Target& target, const std::uint8_t* at, const std::uint8_t* end) {
  while (end - at >= 4) {
    const std::size_t where = at[0] + at[1] * 256u;
    const std::uint8_t kind = at[2];
    const std::uint8_t value = at[3];
    at += 4;
    if (kind < 0x40) {
      const auto size = std::min<std::ptrdiff_t>(1 + kind % 8, end - at + 1);
      target.Write(where, at - 1, static_cast<std::size_t>(size));
      at += size - 1;
    } else if (kind < 0x80) {
      const Handle handle = target.SomeBlock(value) + (kind % 4) * 16;
      target.Write(where, &handle, sizeof(handle));
    } else {
      target.Write(where, &kNumbers[value % std::size(kNumbers)], kind % 2 == 0 ? 4 : 8);
    }
  }
}

// Ends the program if this thread holds a lock of a region, by the kernel's list of those.
void RequireNoLock(const char* scenario) {
  robust_list_head* head = nullptr;
  std::size_t size = 0;
  syscall(SYS_get_robust_list, 0, &head, &size);
  if (head == nullptr || head->list.next == &head->list) return;
  std::fprintf(stderr, "a lock is held after '%s'\n", scenario);
  std::abort();
}

}  // namespace

Outcome ReadDamaged(const std::uint8_t* input, std::size_t size) {
  const std::size_t number = size == 0 ? kNone : input[0] % kNone;
  if (number >= kScenarios.size()) return Outcome::kRead;
  Target& target = TargetOf(number);
  target.Restore();
  Damage(target, input + 1, input + size);
  Outcome outcome = Outcome::kRead;
  try {
    target.Read();
  } catch (const shm::CorruptRegion&) {
    outcome = Outcome::kRejected;
  }
  RequireNoLock(kScenarios[number].name);
  return outcome;
}

}  // namespace envpack::fuzz
