// What server and stub exchange, as plain values. Code above the wire uses only these; the Wire of each epoch
// converts them to the layout in shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace envpack::abi {

// The numbers are the same in every release.
enum class DataType : std::int32_t {
  kInvalid = 0,
  kBool = 1,
  kUint8 = 2,
  kUint16 = 3,
  kUint32 = 4,
  kUint64 = 5,
  kInt8 = 6,
  kInt16 = 7,
  kInt32 = 8,
  kInt64 = 9,
  kFp16 = 10,
  kFp32 = 11,
  kFp64 = 12,
  kBytes = 13,
  kBf16 = 14,
};

enum class MemoryType : std::int32_t { kCpu = 0, kCpuPinned = 1, kGpu = 2 };

enum class ErrorCode : std::int32_t {
  kUnknown = 0,
  kInternal = 1,
  kNotFound = 2,
  kInvalidArg = 3,
  kUnavailable = 4,
  kUnsupported = 5,
  kAlreadyExists = 6,
  kCancelled = 7,
};

enum class LogLevel : std::int32_t { kInfo = 0, kWarning = 1, kError = 2, kVerbose = 3 };

// A tensor refers to its bytes: `data` points to `byte_size` bytes that `owner` keeps alive, on the device
// `memory_type_id` if `memory_type` is kGpu. For tensors from the server the pointer need not be aligned.
struct Tensor {
  std::string name;
  DataType dtype = DataType::kInvalid;
  std::vector<std::int64_t> dims;
  MemoryType memory_type = MemoryType::kCpu;
  std::int64_t memory_type_id = 0;
  const void* data = nullptr;
  std::size_t byte_size = 0;
  std::shared_ptr<const void> owner;
  std::shared_ptr<const void> record;  // used by the wire: the record of a tensor that lies in the region
  std::string unreachable;             // why `data` is null, for GPU memory that could not be mapped
};

struct Error {
  std::string message;
  ErrorCode code = ErrorCode::kInternal;
};

using CorrelationId = std::variant<std::uint64_t, std::string>;

// Identifies a request to the server, for answers and queries. A request that a model makes has none.
struct Origin {
  std::int64_t request = 0;           // address in the server
  std::int64_t response_factory = 0;  // address in the server
  std::shared_ptr<const void> record;
};

// The trace of a request.
struct Trace {
  std::string context;
  std::uint64_t server_trace = 0;  // address in the server, 0 for none
};

// Where the outputs of a BLS request should lie. The numbers differ from those of MemoryType.
struct PreferredMemory {
  enum class Type : std::int32_t { kGpu = 0, kCpu = 1, kDefault = 2 };
  Type type = Type::kDefault;
  std::int64_t device_id = 0;
};

// What happens to a request when execute() has returned.
inline constexpr std::uint32_t kReleaseAll = 1;
inline constexpr std::uint32_t kReleaseReschedule = 2;

// Flag of the last response that a sender sends.
inline constexpr std::uint32_t kResponseFinal = 1;

struct Request {
  Origin origin;
  std::string id;
  CorrelationId correlation_id;
  std::string model_name;
  std::int64_t model_version = -1;
  std::uint32_t flags = 0;
  std::uint64_t timeout_us = 0;
  std::string parameters = "{}";  // a JSON object
  PreferredMemory preferred_memory;
  Trace trace;
  std::set<std::string> requested_outputs;
  std::vector<Tensor> inputs;
};

struct Response {
  std::vector<Tensor> outputs;
  std::optional<Error> error;  // when set, the outputs are not sent
  std::string parameters;      // a JSON object, or empty for none
};

// One response to a BLS request. A decoupled model answers with a stream of responses. `stream` identifies
// the stream; it is 0 if there is none or the server does not report it.
using StreamId = std::uint64_t;
struct InferResponse {
  Response response;
  StreamId stream = 0;
  bool is_last = true;
};

struct LogLine {
  LogLevel level;
  std::string message;
  std::string file;
  std::int32_t line;
};

enum class MetricKind : std::int32_t { kCounter = 0, kGauge = 1, kHistogram = 2 };
enum class MetricChange { kIncrement, kSet, kObserve };

struct MetricFamily {
  std::string name;
  std::string description;
  MetricKind kind = MetricKind::kCounter;
};

struct Metric {
  std::string labels;                          // a JSON object, or "null"
  std::optional<std::vector<double>> buckets;  // upper bounds; of histograms, which may have none
};

struct ModelToLoad {
  std::string name;
  std::string config;                        // JSON; empty for the one in the repository
  std::map<std::string, std::string> files;  // content by path, instead of the files in the repository
};

// The address of an object in the server. The stub only passes it back.
using ServerAddress = std::uint64_t;

// Commands of the server.
struct AutoCompleteCommand {
  std::string model_config;  // JSON
};
struct InitializeCommand {
  std::map<std::string, std::string> arguments;
};
struct ExecuteCommand {
  std::vector<Request> requests;
};
struct FinalizeCommand {};
struct UnknownCommand {};
using Command =
    std::variant<AutoCompleteCommand, InitializeCommand, ExecuteCommand, FinalizeCommand, UnknownCommand>;

// Answers of the stub. Users see the text of a Failure in the load error or in the response.
struct Failure {
  std::string text;
};

// Runs `action`. Returns the message of the exception that it threw, if any.
template <typename Action>
std::optional<Failure> Attempt(Action action) {
  try {
    action();
    return std::nullopt;
  } catch (const std::bad_alloc&) {
    return Failure{"the process has no memory left (std::bad_alloc)"};
  } catch (const std::exception& error) {
    return Failure{error.what()};
  }
}

using AutoCompleteAnswer = std::variant<std::string, Failure>;  // the completed configuration, JSON
using InitializeAnswer = std::optional<Failure>;

// A failed batch. The server deletes the requests' response factories, unless `factories_deleted` is set.
struct ExecuteFailure {
  std::string text;
  bool factories_deleted = false;
};
// One entry for each request, in order; an empty entry means that no response is sent now. No entries if all
// responses are sent by response senders.
using ExecuteAnswer = std::variant<std::vector<std::optional<Response>>, ExecuteFailure>;

}  // namespace envpack::abi
