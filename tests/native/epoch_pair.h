// A server of one epoch and the stub's side of its region, in one process.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "abi/wire.h"
#include "check.h"
#include "host_gpu.h"
#include "peer.h"

namespace envpack::test {

struct Pair {
  // The server is of the epoch's first release, and wakes the stub more often than necessary.
  explicit Pair(abi::Release epoch, bool decoupled = false);

  int release() const { return peer.layouts.release(); }

  // Runs the stub's part in a thread while the server's part runs. Returns the result of the stub's part. An
  // exception of the stub's part fails the case.
  template <typename Stub, typename Server>
  auto Both(Stub stub, Server server) {
    auto result = std::async(std::launch::async, stub);
    try {
      server();
    } catch (const std::exception& error) {  // such as a text of a length that does not exist
      GiveUp(error.what());
    }
    if (!HasEnded(result, TimeoutSeconds() * 1000)) GiveUp("the stub still waits for the server");
    return result.get();
  }

  template <typename Result>
  static bool HasEnded(const std::future<Result>& result, int milliseconds) {
    return result.wait_for(std::chrono::milliseconds(milliseconds)) == std::future_status::ready;
  }

  Peer peer;
  HostGpu gpu;
  std::unique_ptr<abi::Wire> wire;

 private:
  // Ends the process: the thread of the stub's part may wait forever.
  [[noreturn]] void GiveUp(const std::string& why);
};

// Runs `body` for each epoch from `since` on that the stub is built with, and names the epoch in a failure.
// Afterwards no memory of the region may be in use.
struct Epochs {
  abi::Release since = 0;
  bool decoupled = false;
};
void ForEachEpoch(const Epochs& epochs, const std::function<void(Pair&)>& body);
inline void ForEachEpoch(const std::function<void(Pair&)>& body) { ForEachEpoch(Epochs{}, body); }

std::string BytesOf(const abi::Tensor& tensor);
abi::Tensor TensorOf(const std::string& name, std::vector<std::int64_t> dims, const std::string& bytes,
                     abi::DataType dtype = abi::DataType::kInt8);
abi::Response ResponseOf(const std::vector<abi::Tensor>& outputs);

}  // namespace envpack::test
