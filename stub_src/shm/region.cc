#include "shm/region.h"

// Boost 1.87 changed the layout of the segment manager. Servers are built with older versions; this macro
// selects the old layout.
#define BOOST_INTERPROCESS_SEGMENT_MANAGER_ABI 1
#include <pthread.h>
#include <time.h>

#include <boost/interprocess/indexes/iset_index.hpp>
#include <boost/interprocess/managed_external_buffer.hpp>
#include <boost/interprocess/mem_algo/rbtree_best_fit.hpp>
#include <boost/interprocess/sync/mutex_family.hpp>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include "shm/abandoned.h"
#include "shm/mapping.h"
#include "shm/sync.h"

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

constexpr std::size_t kUnaligned = 0;
constexpr std::size_t kAligned = 32;

// Smaller than any region, larger than the allocator's header.
constexpr std::size_t kMinSize = 4096;
constexpr std::size_t kNamedObjects = 2;
constexpr std::int64_t kSecondsForFirstLock = 3;

// Loading a block costs this much of a ReadBudget besides the bytes that are read: no block is smaller.
constexpr std::size_t kSmallestBlock = 32;
constexpr std::size_t kBudgetFactor = 4;  // times the size of the region
thread_local std::size_t* budget = nullptr;

void Charge(std::size_t bytes) {
  if (budget == nullptr) return;
  if (bytes > *budget) throw CorruptRegion("a message refers to the same memory over and over");
  *budget -= bytes;
}

// Fails where Lock would wait forever because the mutex is damaged.
void TryLock(pthread_mutex_t* mutex) {
  timespec limit{};
  clock_gettime(CLOCK_REALTIME, &limit);
  limit.tv_sec += kSecondsForFirstLock;
  if (const int code = pthread_mutex_timedlock(mutex, &limit); code != 0) {
    throw CorruptRegion(std::string("the shared memory region cannot be locked: ") + std::strerror(code));
  }
  pthread_mutex_unlock(mutex);
}

// The lock of a region that this thread holds.
thread_local RegionLock* held = nullptr;

// Collects the releases of this thread.
thread_local ReleaseTogether* together = nullptr;

}  // namespace

ReadBudget::ReadBudget(Region& region)
    : left_(region.Size() * kBudgetFactor), outer_(std::exchange(budget, &left_)) {}

ReadBudget::~ReadBudget() { budget = outer_; }

struct Region::Allocator {
  Mapping mapping;
  std::optional<Buffer> buffer;
  pthread_mutex_t* mutex = nullptr;
  std::uint64_t* total_size = nullptr;

  explicit Allocator(const std::string& name) : mapping(name) {
    if (mapping.size() < kMinSize) Refuse("is too small");
    Open();
    if (buffer->get_num_named_objects() != kNamedObjects)
      Refuse("does not have the named objects of a server's region");
    mutex = Find<pthread_mutex_t>("shm_mutex");
    total_size = Find<std::uint64_t>("total size");
    TryLock(mutex);
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

Block::Block(Block&& other) noexcept
    : region_(std::exchange(other.region_, nullptr)),
      handle_(other.handle_),
      data_(other.data_),
      limit_(other.limit_),
      entry_(other.entry_),
      owner_process_(other.owner_process_) {}

Block& Block::operator=(Block&& other) noexcept {
  if (this != &other) {
    Drop();
    region_ = std::exchange(other.region_, nullptr);
    handle_ = other.handle_;
    data_ = other.data_;
    limit_ = other.limit_;
    entry_ = other.entry_;
    owner_process_ = other.owner_process_;
  }
  return *this;
}

Block::~Block() { Drop(); }

void Block::Drop() noexcept {
  if (region_ == nullptr || !owner_process_.IsThisProcess()) return;
  const Reference reference{handle_, entry_};
  if (together == nullptr || !together->Add(*region_, reference)) region_->Release(reference);
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
  if (!is_nested) lock_.emplace(region.allocator_->mutex);
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
  if (owner_ != nullptr) owner_->lock_.emplace(owner_->region_.allocator_->mutex);
  held = paused_;
}

Region::Region(const std::string& name, std::size_t growth, Ledger* ledger)
    : allocator_(std::make_unique<Allocator>(name)), growth_(growth), ledger_(ledger) {}

Region::~Region() = default;

Block Region::Create(std::size_t size) { return CreateWith(size, kUnaligned); }

Block Region::CreateAligned(std::size_t size) { return CreateWith(size, kAligned); }

Block Region::CreateWith(std::size_t size, std::size_t alignment) {
  const std::size_t whole = size + sizeof(Count);
  const RegionLock lock(*this);
  Follow();
  const auto allocate = [&]() -> void* {
    return alignment == kUnaligned ? allocator_->buffer->allocate(whole, std::nothrow)
                                   : allocator_->buffer->allocate_aligned(whole, alignment, std::nothrow);
  };
  void* address = allocate();
  if (address == nullptr) {
    Grow(whole + alignment);
    address = allocate();
  }
  if (address == nullptr) throw Full(allocator_->mapping.size(), "no room after growing");
  auto* count = static_cast<Count*>(address);
  count->references = 1;
  char* data = static_cast<char*>(address) + sizeof(Count);
  const Handle handle = static_cast<char*>(address) - allocator_->mapping.base();
  return Block(this, handle, data, size, List(handle));
}

Block Region::Load(Handle handle) {
  const RegionLock lock(*this);
  Follow();
  const std::size_t capacity = allocator_->mapping.size();
  const auto offset = static_cast<std::size_t>(handle);
  if (handle <= 0 || offset % sizeof(Count) != 0 || offset > capacity - sizeof(Count)) {
    throw CorruptRegion("handle " + std::to_string(handle) + " lies outside the shared memory region");
  }
  Charge(kSmallestBlock);
  char* address = allocator_->mapping.base() + offset;
  auto* count = reinterpret_cast<Count*>(address);
  // The sender of a block keeps its reference meanwhile, so a valid block has at least one. Counting up and
  // down what is not a block would free memory that was never allocated.
  if (count->references == 0 || count->references > kMaxReferences) {
    throw CorruptRegion("there is no block at handle " + std::to_string(handle) +
                        " of the shared memory region");
  }
  ++count->references;
  return Block(this, handle, address + sizeof(Count), capacity - offset - sizeof(Count), List(handle));
}

std::size_t Region::Size() {
  const RegionLock lock(*this);
  Follow();
  return allocator_->mapping.size();
}

std::uint64_t Region::FreeBytes() {
  const RegionLock lock(*this);
  Follow();
  return allocator_->buffer->get_free_memory();
}

void Region::Unlink() noexcept { allocator_->mapping.Unlink(); }

void Region::Release(Reference reference) noexcept {
  try {
    const RegionLock lock(*this);
    Follow();
    Drop(reference.handle);
    if (ledger_ != nullptr) ledger_->Remove(reference.entry);
  } catch (const std::exception&) {
    // The region is corrupt. It is removed with this model instance, so a leaked block does no harm.
  }
}

// The mutex must be held.
std::uint32_t Region::List(Handle handle) noexcept {
  return ledger_ != nullptr ? ledger_->Add(handle) : Ledger::kForeign;
}

// The mutex must be held and the mapping up to date.
void Region::Drop(Handle handle) {
  char* address = allocator_->mapping.base() + handle;
  if (--reinterpret_cast<Count*>(address)->references == 0) allocator_->buffer->deallocate(address);
}

void Region::CheckLock() const {
  if (IsAbandoned(*allocator_->mutex)) throw Abandoned("it had locked the shared memory region");
  TryLock(allocator_->mutex);
}

std::uint32_t Region::References(Handle handle) {
  const RegionLock lock(*this);
  Follow();
  if (handle <= 0 || static_cast<std::size_t>(handle) > allocator_->mapping.size() - sizeof(Count)) return 0;
  return reinterpret_cast<const Count*>(allocator_->mapping.base() + handle)->references;
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
  const std::size_t total = *allocator_->total_size;
  if (total == allocator_->mapping.size()) return;
  if (total < kMinSize || total > allocator_->mapping.ObjectSize()) {
    throw CorruptRegion("the shared memory region claims a size of " + std::to_string(total) + " bytes");
  }
  allocator_->mapping.Map(total);
  allocator_->Open();
}

// The beginning of the message is the one of the stubs that belong to the releases, which people look for.
RegionFull Region::Full(std::size_t size, const std::string& reason) const {
  return RegionFull("Failed to increase the shared memory pool size for key '" + allocator_->mapping.name() +
                    "' to " + std::to_string(size) + " bytes: " + reason);
}

// Grows the region by at least `need` bytes. The mutex must be held and the mapping up to date.
void Region::Grow(std::size_t need) {
  const std::size_t extra = growth_ * (need / growth_ + 1);
  const std::size_t total = allocator_->mapping.size() + extra;
  if (extra < need || total < extra) throw Full(total, "the size is out of range");
  try {
    allocator_->mapping.Extend(total);
    allocator_->mapping.Map(total);
  } catch (const std::system_error& error) {
    throw Full(total, std::string(error.what()) + ". Give the container more shared memory with --shm-size.");
  }
  allocator_->Open();
  allocator_->buffer->grow(extra);
  *allocator_->total_size = total;
}

}  // namespace envpack::shm
