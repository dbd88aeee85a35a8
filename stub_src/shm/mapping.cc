#include "shm/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace envpack::shm {

namespace {

// Address space costs nothing, but other code of the process must find some too.
constexpr std::size_t kMostReserved = std::size_t{1} << 38;
constexpr std::size_t kShareOfLimit = 8;

std::size_t RoundUp(std::size_t size, std::size_t unit) { return (size + unit - 1) / unit * unit; }

std::size_t PageSize() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

// Address space that nothing uses yet; null if there is none.
char* ReserveAddresses(std::size_t size) {
  void* base = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return base == MAP_FAILED ? nullptr : static_cast<char*>(base);
}

}  // namespace

void Mapping::Unmap::operator()(char* base) const { munmap(base, size); }

Mapping::Mapping(const std::string& name)
    : name_("/" + name), descriptor_(shm_open(name_.c_str(), O_RDWR | O_CLOEXEC, 0)) {
  if (!descriptor_) FailBySystem("cannot open shared memory region " + name);
  Map(ObjectSize());
}

std::size_t Mapping::ObjectSize() const {
  struct stat facts{};
  if (fstat(descriptor_.number(), &facts) != 0)
    FailBySystem("cannot read the size of shared memory region " + name_);
  return static_cast<std::size_t>(facts.st_size);
}

// How much address space to reserve for an object of `size` bytes: as much as its file system holds, but only
// a part of what the process may map.
std::size_t Mapping::Wanted(std::size_t size) const {
  std::size_t wanted = kMostReserved;
  struct statvfs facts{};
  if (fstatvfs(descriptor_.number(), &facts) == 0 && facts.f_blocks != 0) {
    wanted = std::min<std::size_t>(wanted, facts.f_blocks * facts.f_frsize);
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    wanted = std::min<std::size_t>(wanted, limit.rlim_cur / kShareOfLimit);
  }
  return std::max(wanted, size);
}

// A view with room for `size` bytes or more, none of which is mapped yet.
Mapping::View Mapping::Reserve(std::size_t size) const {
  std::size_t wanted = RoundUp(Wanted(size), PageSize());
  char* base = ReserveAddresses(wanted);
  while (base == nullptr && wanted > size) {
    wanted = RoundUp(std::max(wanted / 2, size), PageSize());
    base = ReserveAddresses(wanted);
  }
  if (base == nullptr) FailBySystem("cannot map shared memory region " + name_);
  return {{base, {wanted}}};
}

// Maps the object's bytes behind those that the view shows.
void Mapping::MapUpTo(View& view, std::size_t end) const {
  void* added = mmap(view.base.get() + view.mapped, end - view.mapped, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_FIXED, descriptor_.number(), static_cast<off_t>(view.mapped));
  if (added == MAP_FAILED) FailBySystem("cannot map shared memory region " + name_);
  view.mapped = end;
}

void Mapping::Map(std::size_t size) {
  const std::size_t end = RoundUp(size, PageSize());
  if (end < size || size == 0) FailBySystem("cannot map shared memory region " + name_, EINVAL);
  if (views_.empty() || end > views_.back().reserved()) {
    View view = Reserve(end);
    MapUpTo(view, end);
    views_.push_back(std::move(view));
  } else if (end > views_.back().mapped) {
    MapUpTo(views_.back(), end);
  }
  size_ = size;
}

void Mapping::Extend(std::size_t size) {
  const std::size_t before = ObjectSize();
  int code;
  do {
    code = posix_fallocate(descriptor_.number(), static_cast<off_t>(size_), static_cast<off_t>(size - size_));
  } while (code == EINTR);
  if (code != 0) {
    // A failed reservation may leave the object partly extended; restore its size.
    if (ftruncate(descriptor_.number(), static_cast<off_t>(before)) != 0)
      FailBySystem("cannot restore the size of " + name_);
    FailBySystem("cannot extend shared memory region " + name_, code);
  }
}

void Mapping::Unlink() noexcept { shm_unlink(name_.c_str()); }

}  // namespace envpack::shm
