#include "packing.h"

#include <cstring>
#include <stdexcept>

namespace envpack {

void Packer::Add(std::uint64_t value) { text_.append(reinterpret_cast<const char*>(&value), sizeof(value)); }

void Packer::AddFraction(double value) {
  std::uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  Add(bits);
}

void Packer::Add(std::string_view value) {
  Add(static_cast<std::uint64_t>(value.size()));
  text_ += value;
}

void Packer::AddBytes(std::string_view bytes) { text_ += bytes; }

char* Packer::AddRoom(std::size_t size) {
  const std::size_t at = text_.size();
  text_.resize(at + size);
  return text_.data() + at;
}

void Packer::Align(std::size_t alignment) {
  text_.resize((text_.size() + alignment - 1) / alignment * alignment);
}

std::uint64_t Unpacker::Number() {
  std::uint64_t value;
  std::memcpy(&value, Take(sizeof(value)).data(), sizeof(value));
  return value;
}

double Unpacker::Fraction() {
  const std::uint64_t bits = Number();
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

std::string Unpacker::Text() { return std::string(Take(Number())); }

std::string_view Unpacker::Take(std::uint64_t size) {
  if (size > text_.size() - at_) throw std::runtime_error("a message is shorter than it says");
  const std::string_view taken = text_.substr(at_, size);
  at_ += size;
  return taken;
}

void Unpacker::Align(std::size_t alignment) { Take((alignment - at_ % alignment) % alignment); }

}  // namespace envpack
