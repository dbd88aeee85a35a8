#include "peer_region.h"

#define BOOST_INTERPROCESS_SEGMENT_MANAGER_ABI 1
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <boost/interprocess/indexes/iset_index.hpp>
#include <boost/interprocess/managed_external_buffer.hpp>
#include <boost/interprocess/mem_algo/rbtree_best_fit.hpp>
#include <boost/interprocess/sync/mutex_family.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <vector>

#include "peer_sync.h"

namespace envpack::test {

namespace {

namespace bi = boost::interprocess;

using Buffer =
    bi::basic_managed_external_buffer<char, bi::rbtree_best_fit<bi::null_mutex_family, bi::offset_ptr<void>>,
                                      bi::iset_index>;

constexpr std::size_t kPrefix = 16;

// The prefix distinguishes the regions of concurrent test runs.
std::string NextName(bool has_uuid) {
  static std::atomic<int> next{0};
  const int number = next++;
  const char* prefix = std::getenv("ENVPACK_TEST_REGIONS");
  const std::string name =
      std::string(prefix != nullptr ? prefix : "envpack_native_") + std::to_string(getpid()) + "_";
  if (!has_uuid) return name + std::to_string(number);
  char uuid[37];
  std::snprintf(uuid, sizeof(uuid), "00000000-0000-4000-8000-%012d", number);
  return name + uuid;
}

void Must(bool good, const char* what) {
  if (!good) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

class Guard {
 public:
  explicit Guard(pthread_mutex_t* mutex) : mutex_(mutex) { pthread_mutex_lock(mutex_); }
  ~Guard() { pthread_mutex_unlock(mutex_); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  pthread_mutex_t* mutex_;
};

}  // namespace

struct PeerRegion::State {
  int descriptor = -1;
  std::vector<std::pair<char*, std::size_t>> views;
  std::optional<Buffer> buffer;
  pthread_mutex_t* mutex = nullptr;
  std::uint64_t* total = nullptr;

  char* base() const { return views.back().first; }

  void Map(std::size_t size) {
    void* view = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    Must(view != MAP_FAILED, "mmap");
    views.emplace_back(static_cast<char*>(view), size);
  }

  void Open() { buffer.emplace(bi::open_only, base(), views.back().second); }

  void Follow() {
    if (*total == views.back().second) return;
    Map(*total);
    Open();
  }

  void FillWithGarbage() {
    std::vector<void*> taken;
    for (std::size_t size = buffer->get_free_memory(); size > 64;) {
      void* block = buffer->allocate(size, std::nothrow);
      if (block == nullptr) {
        size /= 2;
        continue;
      }
      std::memset(block, 0xA5, size);
      taken.push_back(block);
    }
    for (void* block : taken) buffer->deallocate(block);
  }
};

PeerRegion::PeerRegion(std::size_t size, bool has_uuid)
    : name_(NextName(has_uuid)), state_(std::make_unique<State>()) {
  const std::string path = "/" + name_;
  shm_unlink(path.c_str());
  state_->descriptor = shm_open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);
  Must(state_->descriptor >= 0, "shm_open");
  Must(posix_fallocate(state_->descriptor, 0, static_cast<off_t>(size)) == 0, "posix_fallocate");
  Must(ftruncate(state_->descriptor, static_cast<off_t>(size)) == 0, "ftruncate");
  state_->Map(size);
  state_->buffer.emplace(bi::create_only, state_->base(), size);
  state_->mutex = state_->buffer->construct<pthread_mutex_t>("shm_mutex")();
  InitShared(state_->mutex);
  state_->total = state_->buffer->construct<std::uint64_t>("total size")(size);
  state_->FillWithGarbage();
}

PeerRegion::~PeerRegion() {
  Unlink();
  for (const auto& [base, size] : state_->views) munmap(base, size);
  close(state_->descriptor);
}

Handle PeerRegion::Create(std::size_t size) {
  const Guard guard(state_->mutex);
  state_->Follow();
  char* block = static_cast<char*>(state_->buffer->allocate(size + kPrefix));
  const std::uint32_t one = 1;
  std::memcpy(block, &one, sizeof(one));
  made_.push_back({block - state_->base(), size});
  return made_.back().handle;
}

void PeerRegion::AddReference(Handle handle) {
  const Guard guard(state_->mutex);
  state_->Follow();
  ++*reinterpret_cast<std::uint32_t*>(state_->base() + handle);
}

void PeerRegion::Release(Handle handle) {
  const Guard guard(state_->mutex);
  state_->Follow();
  if (--*reinterpret_cast<std::uint32_t*>(state_->base() + handle) == 0) {
    state_->buffer->deallocate(state_->base() + handle);
  }
}

std::uint32_t PeerRegion::References(Handle handle) {
  const Guard guard(state_->mutex);
  state_->Follow();
  return *reinterpret_cast<std::uint32_t*>(state_->base() + handle);
}

char* PeerRegion::At(Handle handle, std::ptrdiff_t offset) {
  const Guard guard(state_->mutex);
  state_->Follow();
  return state_->base() + handle + kPrefix + offset;
}

pthread_mutex_t* PeerRegion::mutex() { return state_->mutex; }

std::uint64_t PeerRegion::FreeBytes() {
  const Guard guard(state_->mutex);
  state_->Follow();
  return state_->buffer->get_free_memory();
}

std::uint64_t PeerRegion::Size() {
  const Guard guard(state_->mutex);
  return *state_->total;
}

bool PeerRegion::IsConsistent() {
  const Guard guard(state_->mutex);
  state_->Follow();
  return state_->buffer->check_sanity();
}

void PeerRegion::Grow(std::size_t extra) {
  const Guard guard(state_->mutex);
  state_->Follow();
  const std::size_t total = *state_->total + extra;
  Must(posix_fallocate(state_->descriptor, 0, static_cast<off_t>(total)) == 0, "posix_fallocate");
  state_->Map(total);
  state_->Open();
  state_->buffer->grow(extra);
  *state_->total = total;
}

void PeerRegion::Unlink() { shm_unlink(("/" + name_).c_str()); }

bool PeerRegion::NameExists() const { return access(("/dev/shm/" + name_).c_str(), F_OK) == 0; }

}  // namespace envpack::test
