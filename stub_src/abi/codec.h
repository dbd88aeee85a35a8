// Reading and writing the records that are the same in every release.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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

  // The server's error message. Call it before the record is acknowledged: then the server frees the text.
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
//
// The writer locks the region from its construction to Finish(), so that a message needs one lock. Until
// then, do not wait for anything.
class Writer {
 public:
  explicit Writer(shm::Region& region) : region_(region), lock_(std::in_place, region) {}
  ~Writer();

  // Each returns the handle of the new block.
  Handle WriteString(std::string_view text);
  // A text without room in the region is cut off: the server waits for the first answer without a limit.
  Handle WriteReason(const std::string& text);
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

  // The same with handles behind the record, and `more` bytes behind these.
  template <typename Record>
  const shm::Block& PutWith(const Record& record, const std::vector<Handle>& handles, std::size_t more = 0) {
    const std::size_t bytes = handles.size() * sizeof(Handle);
    const shm::Block& block = Make(sizeof(record) + bytes + more);
    *block.As<Record>() = record;
    shm::CopyBytes(block.At(sizeof(record), bytes), handles.data(), bytes);
    return block;
  }

  // A block of `size` bytes that the caller fills. Valid as long as the writer.
  const shm::Block& Make(std::size_t size, std::size_t alignment = shm::Heap::kAlignment);

  // Unlocks the region, and copies what Fill() has left. Call it before the message is sent.
  void Finish();

 protected:
  // Copies bytes into a block of this writer: at once, or in Finish() if that would hold up the server. The
  // source must live until then.
  void Fill(char* to, const void* from, std::size_t size);

  shm::Region& region_;

 private:
  struct Copy {
    char* to;
    const void* from;
    std::size_t size;
  };

  std::optional<shm::RegionLock> lock_;
  std::vector<Copy> copies_;
  std::deque<shm::Block> blocks_;  // a deque, so that references to its elements remain valid
};

}  // namespace envpack::abi
