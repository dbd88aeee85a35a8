// A shared-memory object and the views of it that this process has mapped.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/descriptor.h"

namespace envpack::shm {

// Opens an existing shared-memory object and maps all of it. The first view reserves address space for as
// much as the object can become, so that a grown object is mapped in place: only the new part, and at the
// same address. An object that outgrows the view is mapped again. Earlier views stay mapped as long as the
// Mapping lives, so pointers into them remain valid.
class Mapping {
 public:
  // `name` is the object's name without the leading slash. Throws std::system_error if it cannot be opened.
  explicit Mapping(const std::string& name);

  std::string name() const { return name_.substr(1); }

  // The newest view.
  char* base() const { return views_.back().base.get(); }
  // The bytes of the object that are in use, all of which are mapped.
  std::size_t size() const { return size_; }

  // Current size of the object in bytes, mapped or not.
  std::size_t ObjectSize() const;

  // Maps the first `size` bytes of the object. The object must have at least that size.
  void Map(std::size_t size);

  // Extends the object to `size` bytes and reserves the pages behind size(): otherwise, the first write to a
  // full /dev/shm raises SIGBUS. On failure, throws std::system_error and restores the size.
  void Extend(std::size_t size);

  // Removes the object's name. Used when the server, which owns the object, has died.
  void Unlink() noexcept;

 private:
  struct Unmap {
    void operator()(char* base) const;

    std::size_t size;
  };
  struct View {
    std::unique_ptr<char, Unmap> base;
    std::size_t mapped = 0;  // the first bytes, which show the object

    std::size_t reserved() const { return base.get_deleter().size; }  // bytes of address space
  };

  std::size_t Wanted(std::size_t size) const;
  View Reserve(std::size_t size) const;
  void MapUpTo(View& view, std::size_t end) const;

  std::string name_;
  Descriptor descriptor_;
  std::size_t size_ = 0;
  std::vector<View> views_;
};

}  // namespace envpack::shm
