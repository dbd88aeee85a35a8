// Layouts of records in each release, from the offsets in stub_src/abi/layouts.txt: the peer must not share
// the declarations that it tests.
#pragma once

#include <cstddef>
#include <cstring>
#include <map>
#include <string>

#include "check.h"

namespace envpack::test {

// Offsets of fields in bytes, by name.
struct Layout {
  std::size_t size;
  std::map<std::string, std::size_t> fields;
};

// A record in memory. Its fields are read and written by name.
class Fields {
 public:
  Fields(char* at, const Layout& layout) : at_(at), layout_(layout) {}

  std::size_t size() const { return layout_.size; }
  bool Has(const std::string& field) const { return layout_.fields.count(field) != 0; }
  template <typename Value>
  Value* Of(const std::string& field) const {
    return reinterpret_cast<Value*>(At(field));
  }
  template <typename Value>
  Value Get(const std::string& field) const {
    Value value;
    std::memcpy(&value, At(field), sizeof(value));
    return value;
  }
  template <typename Value>
  void Put(const std::string& field, Value value) const {
    std::memcpy(At(field), &value, sizeof(value));
  }

 private:
  char* At(const std::string& field) const {
    const auto found = layout_.fields.find(field);
    if (found == layout_.fields.end()) throw Failed("the record of this release has no field " + field);
    return at_ + found->second;
  }

  char* at_;
  const Layout& layout_;
};

// The data of one release, 2410 for example.
class Layouts {
 public:
  explicit Layouts(int release) : release_(release) {}

  int release() const { return release_; }
  // "24.10"
  std::string Name() const {
    const std::string digits = std::to_string(release_);
    return digits.substr(0, 2) + "." + digits.substr(2);
  }
  const Layout& Of(const std::string& record) const;
  std::size_t SizeOf(const std::string& record) const { return Of(record).size; }
  bool HasCommand(const std::string& command) const;
  int NumberOf(const std::string& command) const;
  // Number of arguments of the stub.
  int Arguments() const;

 private:
  int release_;
};

// The release of the server that the tests play: ENVPACK_TEST_RELEASE, or 24.10.
int ReleaseUnderTest();

}  // namespace envpack::test
