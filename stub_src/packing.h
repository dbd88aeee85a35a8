// Numbers and texts in a row of bytes, for messages between processes of one machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace envpack {

class Packer {
 public:
  void Add(std::uint64_t value);
  void AddFraction(double value);
  void Add(std::string_view value);
  void AddBytes(std::string_view bytes);
  // Adds zeros, and returns where they are until something else is added.
  char* AddRoom(std::size_t size);
  // Adds zeros until the size is a multiple of `alignment`.
  void Align(std::size_t alignment);

  std::size_t size() const { return text_.size(); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Throws std::runtime_error if there is less than what is read.
class Unpacker {
 public:
  explicit Unpacker(std::string_view text) : text_(text) {}

  std::uint64_t Number();
  double Fraction();
  std::string Text();
  std::string_view Take(std::uint64_t size);
  void Align(std::size_t alignment);

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace envpack
