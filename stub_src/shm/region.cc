#include "shm/region.h"

// Boost 1.87 changed the layout of the segment manager. Servers have older versions; this selects theirs.
#define BOOST_INTERPROCESS_SEGMENT_MANAGER_ABI 1
#include <pthread.h>

#include <algorithm>
#include <boost/interprocess/indexes/iset_index.hpp>
#include <boost/interprocess/managed_external_buffer.hpp>
#include <boost/interprocess/mem_algo/rbtree_best_fit.hpp>
#include <boost/interprocess/sync/mutex_family.hpp>
#include <chrono>
#include <system_error>
#include <utility>

#include "shm/mapping.h"

namespace envpack::shm {

namespace {

namespace bi = boost::interprocess;

using Buffer =
    bi::basic_managed_external_buffer<char, bi::rbtree_best_fit<bi::null_mutex_family, bi::offset_ptr<void>>,
                                      bi::iset_index>;

// The prefix of every counted block.
struct Count {
  std::uint32_t references;
  std::uint32_t padding[3];
};
static_assert(sizeof(Count) == 16);

constexpr std::uint32_t kMaxReferences = 1 << 20;  // server and stub hold a few

constexpr std::size_t kLeastGrowth = 4096;  // has room for a chunk, however small the server's steps are

// Smaller than any region, larger than the allocator's header.
constexpr std::size_t kMinSize = 4096;
constexpr std::size_t kNamedObjects = 2;
constexpr std::chrono::seconds kLimitOfCheck(3);  // the lock of a damaged region would block for ever
constexpr std::chrono::seconds kLimitOfLock(30);  // where the server may be slow

// Loading a block costs this much of a ReadBudget besides the bytes that are read: no block is smaller.
constexpr std::size_t kSmallestBlock = 32;
constexpr std::size_t kBudgetFactor = 4;  // times the size of the region
thread_local std::size_t* budget = nullptr;

void Charge(std::size_t bytes) {
  if (budget == nullptr) return;
  if (bytes > *budget) throw CorruptRegion("a message refers to the same memory over and over");
  *budget -= bytes;
}

void SetReferences(void* block, std::uint32_t references) {
  Overwrite(static_cast<Count*>(block)->references, references);
}

// The lock of a region that this thread holds.
thread_local RegionLock* held = nullptr;

// Collects the releases of this thread.
thread_local ReleaseTogether* together = nullptr;

}  // namespace

ReadBudget::ReadBudget(Region& region)
    : left_(region.Size() * kBudgetFactor), outer_(std::exchange(budget, &left_)) {}

ReadBudget::~ReadBudget() { budget = outer_; }

struct Region::Memory {
  Mapping mapping;
  std::optional<Buffer> buffer;
  pthread_mutex_t* mutex = nullptr;
  std::uint64_t* total_size = nullptr;

  explicit Memory(const std::string& name) : mapping(name) {
    if (mapping.size() < kMinSize) Refuse("is too small");
    Open();
    if (buffer->get_num_named_objects() != kNamedObjects)
      Refuse("does not have the named objects of a server's region");
    mutex = Find<pthread_mutex_t>("shm_mutex");
    total_size = Find<std::uint64_t>("total size");
  }

  void Open() {
    buffer.emplace(bi::open_only, mapping.base(), mapping.size());
    if (buffer->get_size() < kMinSize || buffer->get_size() > mapping.size()) {
      Refuse("has no valid header");
    }
  }

  template <typename Object>
  Object* Find(const char* object) {
    auto* found = buffer->find<Object>(object).first;
    const auto at =
        reinterpret_cast<std::uintptr_t>(found) - reinterpret_cast<std::uintptr_t>(mapping.base());
    if (at > mapping.size() - sizeof(Object) || at % alignof(Object) != 0) {
      Refuse(std::string("has no object '") + object + "'");
    }
    return found;
  }

  [[noreturn]] void Refuse(const std::string& what) const {
    throw CorruptRegion("shared memory region " + mapping.name() + " " + what +
                        ": it is damaged, or its server is of another release than the stub assumes");
  }
};

void Block::Drop::operator()(Region* region) const noexcept {
  if (!owner_process.IsThisProcess()) return;
  if (together == nullptr || !together->Add(*region, reference)) region->Release(reference);
}

char* Block::At(std::size_t offset, std::size_t length) const {
  if (region_ == nullptr || offset > limit_ || length > limit_ - offset) {
    throw CorruptRegion("a record reaches beyond the end of the shared memory region");
  }
  Charge(length);
  return data_ + offset;
}

ReleaseTogether::ReleaseTogether() {
  if (together == nullptr) together = this;
}

ReleaseTogether::~ReleaseTogether() {
  if (together != this) return;
  together = nullptr;
  if (region_ == nullptr) return;
  try {
    const RegionLock lock(*region_);
    Flush();
  } catch (const std::exception&) {
    // As for a single release.
  }
}

// False if the block must be released at once.
bool ReleaseTogether::Add(Region& region, Reference reference) noexcept {
  if (held != nullptr || !owner_process_.IsThisProcess()) return false;
  if (region_ != nullptr && region_ != &region) return false;
  try {
    references_.push_back(reference);
  } catch (const std::bad_alloc&) {
    return false;
  }
  region_ = &region;
  return true;
}

// The region is locked.
void ReleaseTogether::Flush() noexcept {
  if (!owner_process_.IsThisProcess()) return;
  for (const Reference& reference : references_) region_->Release(reference);
  references_.clear();
  region_ = nullptr;
}

RegionLock::RegionLock(Region& region) : region_(region), outer_(held) {
  const bool is_nested = outer_ != nullptr && &outer_->region_ == &region;
  if (!is_nested) region.HoldLock(lock_);
  held = this;
  if (!is_nested && together != nullptr && together->region_ == &region) together->Flush();
}

RegionLock::~RegionLock() { held = outer_; }

RegionPause::RegionPause() : paused_(std::exchange(held, nullptr)) {
  for (RegionLock* lock = paused_; lock != nullptr; lock = lock->outer_) {
    if (lock->lock_) owner_ = lock;
  }
  if (owner_ != nullptr) owner_->lock_.reset();
}

RegionPause::~RegionPause() {
  if (owner_ != nullptr) owner_->region_.HoldLock(owner_->lock_);
  held = paused_;
}

Region::Region(const std::string& name, std::size_t growth, Ledger* ledger)
    : memory_(std::make_unique<Memory>(name)),
      growth_(growth),
      ledger_(ledger),
      watched_(ledger != nullptr ? &ledger->undo_log() : nullptr) {
  CheckLock();
}

Region::~Region() = default;

Block Region::Create(std::size_t size, std::size_t alignment) {
  const std::size_t whole = size + sizeof(Count);
  const RegionLock lock(*this);
  Follow();
  std::optional<Reference> made = Allocate(whole, alignment);
  if (!made) {
    Grow(whole + alignment);
    made = Allocate(whole, alignment);
  }
  if (!made) throw Full(memory_->mapping.size(), "no room after growing");
  return Block(this, *made, memory_->mapping.base() + made->handle + sizeof(Count), size);
}

// A block with one reference; nothing if there is no room. The mutex must be held, the mapping up to date.
std::optional<Reference> Region::Allocate(std::size_t size, std::size_t alignment) {
  char* base = memory_->mapping.base();
  Operation operation = Begin();
  void* address = Heap(base).Allocate(size, alignment);
  if (address == nullptr) return std::nullopt;
  SetReferences(address, 1);
  const Handle handle = static_cast<char*>(address) - base;
  const Reference made{handle, List(handle)};
  operation.Finish();
  return made;
}

Block Region::Load(Handle handle) {
  const RegionLock lock(*this);
  Follow();
  const std::size_t capacity = memory_->mapping.size();
  const auto offset = static_cast<std::size_t>(handle);
  if (handle <= 0 || offset % sizeof(Count) != 0 || offset > capacity - sizeof(Count)) {
    throw CorruptRegion("handle " + std::to_string(handle) + " lies outside the shared memory region");
  }
  Charge(kSmallestBlock);
  // Counting up and down what is not a block would free memory that was never allocated, or unlock a mutex.
  if (!IsBlock(handle)) {
    throw CorruptRegion("there is no block at handle " + std::to_string(handle) +
                        " of the shared memory region");
  }
  char* address = memory_->mapping.base() + offset;
  Operation operation = Begin();
  SetReferences(address, reinterpret_cast<const Count*>(address)->references + 1);
  const std::uint32_t entry = List(handle);
  operation.Finish();
  return Block(this, {handle, entry}, address + sizeof(Count), capacity - offset - sizeof(Count));
}

std::size_t Region::Size() {
  const RegionLock lock(*this);
  Follow();
  return memory_->mapping.size();
}

std::uint64_t Region::FreeBytes() {
  const RegionLock lock(*this);
  Follow();
  return memory_->buffer->get_free_memory();
}

void Region::Unlink() noexcept { memory_->mapping.Unlink(); }

void Region::Release(Reference reference) noexcept {
  try {
    const RegionLock lock(*this);
    Follow();
    Operation operation = Begin();
    Drop(reference.handle);
    if (ledger_ != nullptr) ledger_->Remove(reference.entry);
    operation.Finish();
  } catch (const std::exception&) {
    // The region is corrupt. It is removed with this model instance, so a leaked block does no harm.
  }
}

// The mutex must be held.
std::uint32_t Region::List(Handle handle) noexcept {
  return ledger_ != nullptr ? ledger_->Add(handle) : Ledger::kForeign;
}

// The mutex must be held and the mapping up to date. What is no block any more has been overwritten.
void Region::Drop(Handle handle) {
  if (!IsBlock(handle)) return;
  char* base = memory_->mapping.base();
  SetReferences(base + handle, reinterpret_cast<Count*>(base + handle)->references - 1);
  if (reinterpret_cast<Count*>(base + handle)->references == 0) Heap(base).Free(base + handle);
}

// What a thread does with the region until Finish() happens as a whole, or not at all. The mutex must be held
// and the mapping up to date.
Operation Region::Begin() {
  UndoLog* log = ledger_ != nullptr ? &ledger_->undo_log() : nullptr;
  return Operation(log, memory_->mapping.base(), memory_->mapping.size());
}

void Region::CheckLock() {
  std::optional<BriefLock> lock;
  HoldWithin(kLimitOfCheck, lock);
}

void Region::CheckAll() {
  std::optional<BriefLock> lock;
  HoldWithin(kLimitOfCheck, lock);
  Follow();
  if (!Heap(memory_->mapping.base()).IsSound(memory_->mapping.size())) {
    throw CorruptRegion("the shared memory region is damaged: its allocator is overwritten");
  }
}

// Who watches a process must not wait for a lock that it has damaged.
void Region::HoldLock(std::optional<BriefLock>& lock) {
  if (watches_another_) return HoldWithin(kLimitOfLock, lock);
  lock.emplace(memory_->mutex);
  if (lock->owner_died()) UndoUnfinished();
}

void Region::HoldWithin(std::chrono::milliseconds limit, std::optional<BriefLock>& lock) {
  if (stays_locked_) throw CorruptRegion("the shared memory region stays locked");
  try {
    lock.emplace(memory_->mutex, limit);
  } catch (const std::system_error& error) {
    stays_locked_ = true;
    throw CorruptRegion(std::string("the shared memory region cannot be locked: ") + error.what());
  }
  if (lock->owner_died()) UndoUnfinished();
}

// The mutex must be held. Its last owner has died.
void Region::UndoUnfinished() {
  Mapping& mapping = memory_->mapping;
  mapping.Map(mapping.ObjectSize());  // the operation may have grown it
  const bool is_undone = watched_ == nullptr || watched_->Undo(mapping.base(), mapping.size());
  MapAgain();
  if (!is_undone) throw CorruptRegion("a process died while it changed the shared memory region");
}

std::uint32_t Region::References(Handle handle) {
  const RegionLock lock(*this);
  Follow();
  return IsBlock(handle) ? reinterpret_cast<const Count*>(memory_->mapping.base() + handle)->references : 0;
}

// The mutex must be held and the mapping up to date. The sender of a block keeps its reference meanwhile, so
// a valid one has at least one.
bool Region::IsBlock(Handle handle) const {
  const std::size_t size = memory_->mapping.size();
  if (handle <= 0 || static_cast<std::size_t>(handle) > size - sizeof(Count)) return false;
  const char* address = memory_->mapping.base() + handle;
  if (!Heap(memory_->mapping.base()).IsAllocated(address, size)) return false;
  const std::uint32_t references = reinterpret_cast<const Count*>(address)->references;
  return references > 0 && references <= kMaxReferences;
}

void Region::ReleaseFor(const std::vector<Handle>& held) noexcept {
  try {
    const RegionLock lock(*this);
    Follow();
    for (const Handle handle : held) Drop(handle);
  } catch (const std::exception&) {
    // As for a single release.
  }
}

// Maps the region again if the server has grown it. The mutex must be held.
void Region::Follow() {
  if (*memory_->total_size != memory_->mapping.size()) MapAgain();
}

void Region::MapAgain() {
  const std::size_t total = *memory_->total_size;
  if (total < kMinSize || total > memory_->mapping.ObjectSize()) {
    throw CorruptRegion("the shared memory region claims a size of " + std::to_string(total) + " bytes");
  }
  memory_->mapping.Map(total);
  memory_->Open();
}

// The beginning of the message is the one of the stubs that belong to the releases, which people look for.
RegionFull Region::Full(std::size_t size, const std::string& reason) const {
  return RegionFull("Failed to increase the shared memory pool size for key '" + memory_->mapping.name() +
                    "' to " + std::to_string(size) + " bytes: " + reason);
}

// Grows the region by at least `need` bytes. The mutex must be held and the mapping up to date.
void Region::Grow(std::size_t need) {
  const std::size_t extra = growth_ * (std::max(need, kLeastGrowth) / growth_ + 1);
  const std::size_t total = memory_->mapping.size() + extra;
  if (extra < need || total < extra) throw Full(total, "the size is out of range");
  try {
    memory_->mapping.Extend(total);
    memory_->mapping.Map(total);
  } catch (const std::system_error& error) {
    const bool is_full = error.code() == std::errc::no_space_on_device;
    constexpr char kHint[] = ". Give the container more shared memory with --shm-size.";
    throw Full(total, std::string(error.what()) + (is_full ? kHint : ""));
  }
  memory_->Open();
  Operation operation = Begin();
  Heap(memory_->mapping.base()).Grow(extra);
  Overwrite(*memory_->total_size, total);
  operation.Finish();
}

}  // namespace envpack::shm
