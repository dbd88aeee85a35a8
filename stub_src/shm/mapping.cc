#include "shm/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace envpack::shm {

namespace {

[[noreturn]] void Fail(const std::string& what, int code = errno) {
  throw std::system_error(code, std::generic_category(), what);
}

}  // namespace

Mapping::Mapping(const std::string& name) : name_("/" + name) {
  descriptor_ = shm_open(name_.c_str(), O_RDWR | O_CLOEXEC, 0);
  if (descriptor_ < 0) Fail("cannot open shared memory region " + name);
  try {
    Remap(ObjectSize());
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

Mapping::~Mapping() {
  for (const View& view : views_) munmap(view.base, view.size);
  close(descriptor_);
}

std::size_t Mapping::ObjectSize() const {
  struct stat facts{};
  if (fstat(descriptor_, &facts) != 0) Fail("cannot read the size of shared memory region " + name_);
  return static_cast<std::size_t>(facts.st_size);
}

void Mapping::Remap(std::size_t size) {
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (base == MAP_FAILED) Fail("cannot map shared memory region " + name_);
  views_.push_back({static_cast<char*>(base), size});
}

void Mapping::Extend(std::size_t size) {
  const std::size_t before = ObjectSize();
  int code;
  do {
    code = posix_fallocate(descriptor_, 0, static_cast<off_t>(size));
  } while (code == EINTR);
  if (code != 0) {
    // A failed reservation may leave the object partly extended; restore its size.
    if (ftruncate(descriptor_, static_cast<off_t>(before)) != 0) Fail("cannot restore the size of " + name_);
    Fail("cannot extend shared memory region " + name_, code);
  }
}

void Mapping::Unlink() noexcept { shm_unlink(name_.c_str()); }

}  // namespace envpack::shm
