// Reading and writing the records that are the same in every release.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "abi/records.h"
#include "abi/values.h"
#include "shm/region.h"

namespace envpack::abi {

using shm::Handle;

// Every function throws shm::CorruptRegion for an invalid record.
class Reader {
 public:
  explicit Reader(shm::Region& region) : region_(region) {}

  std::string ReadString(Handle handle) const;
  std::map<std::string, std::string> ReadDict(Handle handle) const;
  CorrelationId ReadCorrelationId(Handle handle) const;
  Trace ReadTrace(Handle handle) const;

  // The error message of the server. Call it before the record is acknowledged: afterwards the server frees
  // the text.
  std::string ErrorText(bool is_set, Handle text, const char* otherwise = "the server gives no reason") const;

  // A String followed by its bytes, at `offset`. Advances `offset` to the end of the bytes.
  static std::string ReadInlineString(const shm::Block& block, std::size_t& offset);

  // `count` handles at `offset`.
  static std::vector<Handle> ReadHandles(const shm::Block& block, std::size_t offset, std::uint64_t count);

  // `count` times `size`. Throws shm::CorruptRegion on overflow.
  static std::size_t CheckedProduct(std::uint64_t count, std::size_t size);

 protected:
  shm::Region& region_;
};

// Creates the blocks of one outgoing message. Its references keep the blocks alive until the writer is
// destroyed, which must not happen before the server has added its own references.
class Writer {
 public:
  explicit Writer(shm::Region& region) : region_(region) {}
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Each returns the handle of the new block.
  Handle WriteString(std::string_view text);
  Handle WriteDict(const std::map<std::string, std::string>& dict);
  Handle WriteCorrelationId(const CorrelationId& id);
  Handle WriteTrace(const Trace& trace);

  // A block that contains `record`. Valid as long as the writer.
  template <typename Record>
  const shm::Block& Put(const Record& record) {
    const shm::Block& block = Make(sizeof(record));
    *block.As<Record>() = record;
    return block;
  }

  // A block of `size` bytes that the caller fills. Valid as long as the writer. MakeAligned() is for the
  // records that the server aligns to 32 bytes.
  const shm::Block& Make(std::size_t size);
  const shm::Block& MakeAligned(std::size_t size);

 protected:
  shm::Region& region_;

 private:
  std::deque<shm::Block> blocks_;  // a deque, so that references to its elements remain valid
};

}  // namespace envpack::abi
