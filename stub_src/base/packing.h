// Values in a row of bytes, for messages between processes of one machine. Numbers, flags and enumerations
// have eight bytes; texts, lists and maps begin with their size, and a choice of two types with 0 or 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace envpack {

template <typename Value>
using IfNumber = std::enable_if_t<std::is_integral_v<Value> || std::is_enum_v<Value>, int>;

class Packer {
 public:
  template <typename... Values>
  void operator()(const Values&... values) {
    (Add(values), ...);
  }

  void AddBytes(std::string_view bytes) { text_ += bytes; }
  // Adds zeros, and returns where they are until something else is added.
  char* AddRoom(std::size_t size) {
    text_.resize(text_.size() + size);
    return text_.data() + text_.size() - size;
  }
  // Adds zeros until the size is a multiple of `alignment`.
  void Align(std::size_t alignment) { text_.resize((text_.size() + alignment - 1) / alignment * alignment); }

  std::size_t size() const { return text_.size(); }
  const std::string& text() const { return text_; }

 private:
  template <typename Value, IfNumber<Value> = 0>
  void Add(Value value) {
    const auto number = static_cast<std::uint64_t>(value);
    AddBytes({reinterpret_cast<const char*>(&number), sizeof(number)});
  }
  void Add(double value) { AddBytes({reinterpret_cast<const char*>(&value), sizeof(value)}); }
  void Add(std::string_view text) {
    Add(text.size());
    AddBytes(text);
  }
  template <typename Item>
  void Add(const std::vector<Item>& items) {
    AddAll(items);
  }
  void Add(const std::set<std::string>& items) { AddAll(items); }
  void Add(const std::map<std::string, std::string>& items) { AddAll(items); }
  void Add(const std::pair<const std::string, std::string>& item) { (*this)(item.first, item.second); }
  template <typename First, typename Second>
  void Add(const std::variant<First, Second>& choice) {
    Add(choice.index());
    std::visit([&](const auto& value) { this->Add(value); }, choice);
  }

  template <typename Items>
  void AddAll(const Items& items) {
    Add(items.size());
    for (const auto& item : items) Add(item);
  }

  std::string text_;
};

template <typename... Values>
Packer Packed(const Values&... values) {
  Packer packer;
  packer(values...);
  return packer;
}

// Throws std::runtime_error if there is less than what is read.
class Unpacker {
 public:
  explicit Unpacker(std::string_view text) : text_(text) {}

  template <typename... Values>
  void operator()(Values&... values) {
    (Read(values), ...);
  }
  template <typename Value>
  Value Next() {
    Value value{};
    Read(value);
    return value;
  }

  std::string_view Take(std::uint64_t size) {
    if (size > text_.size() - at_) throw std::runtime_error("a message is shorter than it says");
    at_ += size;
    return text_.substr(at_ - size, size);
  }
  void Align(std::size_t alignment) { Take((alignment - at_ % alignment) % alignment); }

 private:
  template <typename Value, IfNumber<Value> = 0>
  void Read(Value& value) {
    std::uint64_t number;
    std::memcpy(&number, Take(sizeof(number)).data(), sizeof(number));
    value = static_cast<Value>(number);
  }
  void Read(double& value) { std::memcpy(&value, Take(sizeof(value)).data(), sizeof(value)); }
  void Read(std::string& text) { text = Take(Next<std::uint64_t>()); }
  template <typename Item>
  void Read(std::vector<Item>& items) {
    for (auto left = Next<std::uint64_t>(); left > 0; --left) items.push_back(Next<Item>());
  }
  void Read(std::set<std::string>& items) {
    for (auto left = Next<std::uint64_t>(); left > 0; --left) items.insert(Next<std::string>());
  }
  void Read(std::map<std::string, std::string>& items) {
    for (auto left = Next<std::uint64_t>(); left > 0; --left) {
      auto name = Next<std::string>();
      items.emplace(std::move(name), Next<std::string>());
    }
  }
  template <typename First, typename Second>
  void Read(std::variant<First, Second>& choice) {
    if (Next<bool>()) {
      choice = Next<Second>();
    } else {
      choice = Next<First>();
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace envpack
