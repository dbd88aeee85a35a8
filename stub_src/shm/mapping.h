// A shared-memory object and the views of it that this process has mapped.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace envpack::shm {

// Opens an existing shared-memory object and maps all of it. The object may grow; each growth is mapped anew,
// and earlier views stay valid for as long as the Mapping lives, so a pointer once given never dangles.
class Mapping {
 public:
  // `name` is the object's name without the leading slash. Throws std::system_error if it cannot be opened.
  explicit Mapping(const std::string& name);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::string name() const { return name_.substr(1); }

  // Newest view.
  char* base() const { return views_.back().base; }
  std::size_t size() const { return views_.back().size; }

  // Bytes that the object has right now, mapped or not.
  std::size_t ObjectSize() const;

  // Maps the first `size` bytes again, of which there must be that many.
  void Remap(std::size_t size);

  // Makes the object `size` bytes long, with its pages reserved. On failure the object keeps its size and
  // std::system_error is thrown: without the reservation a full /dev/shm would be a SIGBUS at the first
  // write.
  void Extend(std::size_t size);

  // Removes the object's name. For the case that the server, who owns it, has died.
  void Unlink() noexcept;

 private:
  struct View {
    char* base;
    std::size_t size;
  };

  std::string name_;
  int descriptor_;
  std::vector<View> views_;
};

}  // namespace envpack::shm
