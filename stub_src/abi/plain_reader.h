// Reading what every release writes alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "abi/records.h"
#include "abi/values.h"
#include "shm/region.h"

namespace envpack::abi {

using shm::Handle;

// Every function throws shm::CorruptRegion if a record is not what it should be.
class PlainReader {
 public:
  explicit PlainReader(shm::Region& region) : region_(region) {}

  std::string ReadString(Handle handle) const;
  std::map<std::string, std::string> ReadDict(Handle handle) const;
  CorrelationId ReadCorrelationId(Handle handle) const;
  Trace ReadTrace(Handle handle) const;

  // What the server says went wrong. Must be called before the record is given back, since the server frees
  // the text.
  std::string ErrorText(bool is_set, Handle text,
                        const char* otherwise = "the server does not say why") const;

  // A String with its bytes behind it, at `offset`, which is moved behind both.
  static std::string ReadInlineString(const shm::Block& block, std::size_t& offset);

  // `count` handles that lie at `offset`.
  static std::vector<Handle> ReadHandles(const shm::Block& block, std::size_t offset, std::uint64_t count);

  // `count` times `size`. Throws shm::CorruptRegion if that is more than there can be.
  static std::size_t CheckedProduct(std::uint64_t count, std::size_t size);

 protected:
  shm::Region& region_;
};

}  // namespace envpack::abi
