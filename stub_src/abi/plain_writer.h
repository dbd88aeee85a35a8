// Writing what every release reads alike.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <string_view>

#include "abi/plain_reader.h"
#include "abi/records.h"
#include "abi/values.h"
#include "shm/region.h"

namespace envpack::abi {

// Makes the blocks of one outgoing message and keeps them until the server is known to have taken its own
// references, that is, until the writer goes away.
class PlainWriter {
 public:
  explicit PlainWriter(shm::Region& region) : region_(region) {}
  ~PlainWriter();
  PlainWriter(const PlainWriter&) = delete;
  PlainWriter& operator=(const PlainWriter&) = delete;

  // Each returns the handle of the block made.
  Handle WriteString(std::string_view text);
  Handle WriteDict(const std::map<std::string, std::string>& dict);
  Handle WriteCorrelationId(const CorrelationId& id);
  Handle WriteTrace(const Trace& trace);

  // A block with one record in it; valid as long as the writer.
  template <typename Record>
  const shm::Block& Put(const Record& record) {
    const shm::Block& block = Make(sizeof(record));
    *block.As<Record>() = record;
    return block;
  }

  // A block of `size` bytes that the caller fills; valid as long as the writer. The server's own helper
  // aligns some records to 32 bytes, and so does MakeAligned.
  const shm::Block& Make(std::size_t size);
  const shm::Block& MakeAligned(std::size_t size);

 protected:
  shm::Region& region_;

 private:
  std::deque<shm::Block> blocks_;  // a deque, so that a block stays where Make() said it is
};

}  // namespace envpack::abi
