// Values to records of 24.10.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "abi/records_24_10.h"
#include "abi/values.h"
#include "shm/region.h"

namespace envpack::abi::r24_10 {

// Makes the blocks of one outgoing message and keeps them until the server is known to have taken its own
// references, that is, until the Writer goes away.
class Writer {
 public:
  explicit Writer(shm::Region& region) : region_(region) {}
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Each returns the handle of the block made.
  Handle WriteString(std::string_view text);
  Handle WriteDict(const std::map<std::string, std::string>& dict);
  Handle WriteDoubles(const std::vector<double>& values);
  Handle WriteTensor(const abi::Tensor& tensor);
  Handle WriteResponse(const abi::Response& response);
  Handle WriteRequest(const abi::Request& request, bool decoupled);

  // A tensor whose bytes lie in the region already, in a block of their own, which aligns them to eight.
  static abi::Tensor Allocate(shm::Region& region, const abi::Tensor& tensor);

  // A block of `size` bytes that the caller fills; valid as long as the Writer. The server's own helper
  // aligns some records to 32 bytes, and so does MakeAligned.
  const shm::Block& Make(std::size_t size);
  const shm::Block& MakeAligned(std::size_t size);

  // Tensors written so far that lie on a GPU: their bytes travel another way.
  const std::vector<abi::Tensor>& device_tensors() const { return device_tensors_; }

 private:
  // A block with one record in it.
  template <typename Record>
  Handle Put(const Record& record);
  Handle WriteError(const abi::Error& error);
  Handle WriteCorrelationId(const abi::CorrelationId& id);
  Handle WriteTrace(const abi::Trace& trace);

  shm::Region& region_;
  std::deque<shm::Block> blocks_;  // a deque, so that a block stays where Make() said it is
  std::vector<std::shared_ptr<const void>> sent_as_they_are_;
  std::vector<abi::Tensor> device_tensors_;
};

}  // namespace envpack::abi::r24_10
