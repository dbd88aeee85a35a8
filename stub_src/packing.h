// Numbers and texts in a row of bytes, for messages between processes of one machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

namespace envpack {

class Packer {
 public:
  void Add(std::uint64_t value) { text_.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
  void AddFraction(double value) {
    std::uint64_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    Add(bits);
  }
  void Add(std::string_view value) {
    Add(static_cast<std::uint64_t>(value.size()));
    text_ += value;
  }
  void AddBytes(std::string_view bytes) { text_ += bytes; }
  // Adds zeros until the size is a multiple of `alignment`.
  void Align(std::size_t alignment) { text_.resize((text_.size() + alignment - 1) / alignment * alignment); }

  std::size_t size() const { return text_.size(); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Throws std::runtime_error if there is less than what is read.
class Unpacker {
 public:
  explicit Unpacker(std::string_view text) : text_(text) {}

  std::uint64_t Number() {
    std::uint64_t value;
    std::memcpy(&value, Take(sizeof(value)).data(), sizeof(value));
    return value;
  }
  double Fraction() {
    const std::uint64_t bits = Number();
    double value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
  std::string Text() { return std::string(Take(Number())); }
  std::string_view Take(std::uint64_t size) {
    if (size > text_.size() - at_) throw std::runtime_error("a message is shorter than it says");
    const std::string_view taken = text_.substr(at_, size);
    at_ += size;
    return taken;
  }
  void Align(std::size_t alignment) { Take((alignment - at_ % alignment) % alignment); }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace envpack
