#include "shm/region.h"

// Boost 1.87 changed the layout of the segment manager; the server was built with an older one. This selects
// the old.
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

#include "shm/mapping.h"
#include "shm/sync.h"

namespace envpack::shm {

namespace {

namespace bi = boost::interprocess;

using Buffer =
    bi::basic_managed_external_buffer<char, bi::rbtree_best_fit<bi::null_mutex_family, bi::offset_ptr<void>>,
                                      bi::iset_index>;

// What precedes the record in every counted block.
struct Count {
  std::uint32_t references;
  std::uint32_t padding[3];
};
static_assert(sizeof(Count) == 16);

constexpr std::uint32_t kMostReferences = 1 << 20;  // the server and we hold a few

constexpr std::size_t kUnaligned = 0;
constexpr std::size_t kAligned = 32;

// What a server makes at the very least; smaller than any region, larger than the allocator's own header.
constexpr std::size_t kLeast = 4096;
constexpr std::size_t kNamedObjects = 2;
constexpr std::int64_t kSecondsForFirstLock = 3;

// What looking at a block costs of a Reading's allowance, on top of the bytes themselves: no block takes
// less.
constexpr std::size_t kSmallestBlock = 32;
constexpr std::size_t kTimesOver = 4;
thread_local std::size_t* allowance = nullptr;

void Spend(std::size_t bytes) {
  if (allowance == nullptr) return;
  if (bytes > *allowance) throw CorruptRegion("a message claims the same memory over and over");
  *allowance -= bytes;
}

// Fails where Lock would wait for ever for a mutex that only looks like one.
void TryLock(pthread_mutex_t* mutex) {
  timespec limit{};
  clock_gettime(CLOCK_REALTIME, &limit);
  limit.tv_sec += kSecondsForFirstLock;
  if (const int code = pthread_mutex_timedlock(mutex, &limit); code != 0) {
    throw CorruptRegion(std::string("the shared memory region cannot be locked: ") + std::strerror(code));
  }
  pthread_mutex_unlock(mutex);
}

// The region whose lock this thread holds.
thread_local const Region* held = nullptr;

}  // namespace

Reading::Reading(Region& region)
    : left_(region.Size() * kTimesOver), outer_(std::exchange(allowance, &left_)) {}

Reading::~Reading() { allowance = outer_; }

struct Region::Allocator {
  Mapping mapping;
  std::optional<Buffer> buffer;
  pthread_mutex_t* mutex = nullptr;
  std::uint64_t* total_size = nullptr;

  explicit Allocator(const std::string& name) : mapping(name) {
    if (mapping.size() < kLeast) Refuse("is too small");
    Open();
    if (buffer->get_num_named_objects() != kNamedObjects) Refuse("has other named objects than a server's");
    mutex = Find<pthread_mutex_t>("shm_mutex");
    total_size = Find<std::uint64_t>("total size");
    TryLock(mutex);
  }

  void Open() {
    buffer.emplace(bi::open_only, mapping.base(), mapping.size());
    if (buffer->get_size() < kLeast || buffer->get_size() > mapping.size()) {
      Refuse("does not begin as a server's does");
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
                        ": its server is not of the release that this stub is for, or it is damaged");
  }
};

Block::Block(Block&& other) noexcept
    : region_(std::exchange(other.region_, nullptr)),
      handle_(other.handle_),
      data_(other.data_),
      limit_(other.limit_),
      maker_(other.maker_) {}

Block& Block::operator=(Block&& other) noexcept {
  if (this != &other) {
    Drop();
    region_ = std::exchange(other.region_, nullptr);
    handle_ = other.handle_;
    data_ = other.data_;
    limit_ = other.limit_;
    maker_ = other.maker_;
  }
  return *this;
}

Block::~Block() { Drop(); }

void Block::Drop() noexcept {
  if (region_ != nullptr && maker_.IsThisProcess()) region_->Release(handle_);
}

char* Block::At(std::size_t offset, std::size_t length) const {
  if (region_ == nullptr || offset > limit_ || length > limit_ - offset) {
    throw CorruptRegion("a record reaches beyond the end of the shared memory region");
  }
  Spend(length);
  return data_ + offset;
}

Hold::Hold(Region& region) : outer_(held) {
  if (outer_ != &region) lock_.emplace(region.allocator_->mutex);
  held = &region;
}

Hold::~Hold() { held = outer_; }

Region::Region(const std::string& name, std::size_t growth)
    : allocator_(std::make_unique<Allocator>(name)), growth_(growth) {}

Region::~Region() = default;

Block Region::Create(std::size_t size) { return CreateWith(size, kUnaligned); }

Block Region::CreateAligned(std::size_t size) { return CreateWith(size, kAligned); }

Block Region::CreateWith(std::size_t size, std::size_t alignment) {
  const std::size_t whole = size + sizeof(Count);
  const Hold hold(*this);
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
  if (address == nullptr)
    throw RegionFull("Failed to increase the shared memory pool size: no room after growing");
  auto* count = static_cast<Count*>(address);
  count->references = 1;
  char* data = static_cast<char*>(address) + sizeof(Count);
  return Block(this, static_cast<char*>(address) - allocator_->mapping.base(), data, size);
}

Block Region::Load(Handle handle) {
  const Hold hold(*this);
  Follow();
  const std::size_t capacity = allocator_->mapping.size();
  const auto offset = static_cast<std::size_t>(handle);
  if (handle <= 0 || offset % sizeof(Count) != 0 || offset > capacity - sizeof(Count)) {
    throw CorruptRegion("handle " + std::to_string(handle) + " does not lie in the shared memory region");
  }
  Spend(kSmallestBlock);
  char* address = allocator_->mapping.base() + offset;
  auto* count = reinterpret_cast<Count*>(address);
  // Whoever hands a block over keeps a reference of its own meanwhile. Taking the only one of what is no
  // block, and giving it back, would free memory that was never allocated.
  if (count->references == 0 || count->references > kMostReferences) {
    throw CorruptRegion("there is no block at handle " + std::to_string(handle) +
                        " of the shared memory region");
  }
  ++count->references;
  return Block(this, handle, address + sizeof(Count), capacity - offset - sizeof(Count));
}

std::size_t Region::Size() {
  const Hold hold(*this);
  Follow();
  return allocator_->mapping.size();
}

std::uint64_t Region::FreeBytes() {
  const Hold hold(*this);
  Follow();
  return allocator_->buffer->get_free_memory();
}

void Region::Unlink() noexcept { allocator_->mapping.Unlink(); }

void Region::Release(Handle handle) noexcept {
  try {
    const Hold hold(*this);
    Follow();
    char* address = allocator_->mapping.base() + handle;
    if (--reinterpret_cast<Count*>(address)->references == 0) allocator_->buffer->deallocate(address);
  } catch (const std::exception&) {
    // The region is beyond repair; it disappears with this process's instance, so a lost block does no harm.
  }
}

// Maps the region again if the server has made it larger. The mutex must be held.
void Region::Follow() {
  const std::size_t total = *allocator_->total_size;
  if (total == allocator_->mapping.size()) return;
  if (total < kLeast || total > allocator_->mapping.ObjectSize()) {
    throw CorruptRegion("the shared memory region claims to have " + std::to_string(total) + " bytes");
  }
  allocator_->mapping.Remap(total);
  allocator_->Open();
}

// Makes room for `need` more bytes. The mutex must be held and the mapping be up to date.
void Region::Grow(std::size_t need) {
  const std::size_t extra = growth_ * (need / growth_ + 1);
  const std::size_t total = allocator_->mapping.size() + extra;
  if (extra < need || total < extra) throw RegionFull("the shared memory pool cannot grow by that much");
  try {
    allocator_->mapping.Extend(total);
    allocator_->mapping.Remap(total);
  } catch (const std::system_error& error) {
    throw RegionFull(std::string("Failed to increase the shared memory pool size to ") +
                     std::to_string(total) + " bytes: " + error.what() +
                     ". Give the container more shared memory with --shm-size.");
  }
  allocator_->Open();
  allocator_->buffer->grow(extra);
  *allocator_->total_size = total;
}

}  // namespace envpack::shm
