// The socket of the local wire: messages in both directions, each with a kind, an id and bytes.
// `envpack/local/connection.py` has the other side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "base/descriptor.h"
#include "base/packing.h"

namespace envpack::local {

enum class Kind : std::uint64_t {
  // From the host, which stands for the server.
  kStart = 1,
  kAutoComplete,
  kInitialize,
  kExecute,
  kFinalize,
  kAnswer,  // to the query with the same id
  kStreamResponse,
  kReadiness,

  // From this process. Without an answer:
  kCompleted = 100,
  kInitialized,
  kExecuted,
  kFinalized,
  kLog,
  kIsReady,  // to kReadiness with the same id
  // With one:
  kSend = 200,
  kDeleteFactory,
  kIsCancelled,
  kInfer,
  kEndStream,
  kCancelStream,
  kCreateMetricFamily,
  kDeleteMetricFamily,
  kCreateMetric,
  kDeleteMetric,
  kChangeMetric,
  kMetricValue,
  kLoadModel,
  kUnloadModel,
  kIsModelReady,
};

struct Message {
  Kind kind{};
  std::uint64_t id = 0;
  std::shared_ptr<const void> owner;  // of the bytes
  std::string_view bytes;
};

class Connection {
 public:
  explicit Connection(int socket) : socket_(socket) {}

  // Any thread. Throws std::system_error.
  void Send(Kind kind, std::uint64_t id, const Packer& content);

  // Waits for the next message; nothing if the other side has closed the connection. One thread. Throws
  // std::system_error, and std::runtime_error for a message that is too large.
  std::optional<Message> Receive();

 private:
  bool ReadAll(void* to, std::size_t size);

  Descriptor socket_;
  std::mutex sending_;
};

}  // namespace envpack::local
