// Values to and from the records of 24.10.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "abi/records_24_10.h"
#include "abi/values.h"
#include "shm/region.h"

namespace envpack::abi::r24_10 {

std::string ReadString(shm::Region& region, Handle handle);
std::map<std::string, std::string> ReadDict(shm::Region& region, Handle handle);
abi::Tensor ReadTensor(shm::Region& region, Handle handle);
abi::Request ReadRequest(shm::Region& region, Handle handle);
std::vector<abi::Request> ReadRequests(shm::Region& region, Handle batch);

// Makes the blocks of one outgoing message and keeps them until the server is known to have taken its own
// references, that is, until the Writer goes away.
class Writer {
 public:
  explicit Writer(shm::Region& region) : region_(region) {}

  // Each returns the handle of the block made.
  Handle WriteString(std::string_view text);
  Handle WriteDict(const std::map<std::string, std::string>& dict);
  Handle WriteDoubles(const std::vector<double>& values);
  Handle WriteTensor(const abi::Tensor& tensor);
  Handle WriteResponse(const abi::Response& response);

  // A block of `size` bytes that the caller fills; valid as long as the Writer. The server's own helper
  // aligns some records to 32 bytes, and so does MakeAligned.
  const shm::Block& Make(std::size_t size);
  const shm::Block& MakeAligned(std::size_t size);

 private:
  Handle WriteError(const abi::Error& error);

  shm::Region& region_;
  std::deque<shm::Block> blocks_;  // a deque, so that a block stays where Make() said it is
};

}  // namespace envpack::abi::r24_10
