// What travels between server and stub, as plain values. Everything above the wire speaks in these; how a
// release lays them out in shared memory is the business of that release's Wire alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace envpack::abi {

// Numbers are the same in every release.
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

// A tensor's bytes stay where they are: `data` points to `byte_size` bytes that `owner` keeps alive, on the
// device `memory_type_id` if `memory_type` is kGpu. The pointer is not aligned for tensors that came from the
// server.
struct Tensor {
  std::string name;
  DataType dtype = DataType::kInvalid;
  std::vector<std::int64_t> dims;
  MemoryType memory_type = MemoryType::kCpu;
  std::int64_t memory_type_id = 0;
  const void* data = nullptr;
  std::size_t byte_size = 0;
  std::shared_ptr<const void> owner;
  std::shared_ptr<const void> record;  // the wire's: of a tensor that lies in the region as it is
  std::string unreachable;             // why there is no `data`, for bytes on a GPU that we cannot get at
};

struct Error {
  std::string message;
  ErrorCode code = ErrorCode::kInternal;
};

using CorrelationId = std::variant<std::uint64_t, std::string>;

// Where a request came from: what the server needs to know again when the stub answers or asks about it. A
// request that a model makes itself has none.
struct Origin {
  std::int64_t request = 0;           // address in the server
  std::int64_t response_factory = 0;  // address in the server
  std::shared_ptr<const void> record;
};

// The trace that a request belongs to.
struct Trace {
  std::string context;
  std::uint64_t server_trace = 0;  // address in the server, 0 for none
};

// Where the outputs of a model's own request should lie. Numbers are not those of MemoryType.
struct PreferredMemory {
  enum class Type : std::int32_t { kGpu = 0, kCpu = 1, kDefault = 2 };
  Type type = Type::kDefault;
  std::int64_t device_id = 0;
};

// What a model may ask to happen to a request when execute() has returned.
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

// One response to a request that the model has made itself. Requests to decoupled models are answered by a
// stream of them; `stream` names it, 0 where there is none or the server has not said which.
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
  std::string labels;           // a JSON object, or "null"
  std::vector<double> buckets;  // upper bounds, of histograms only
};

struct ModelToLoad {
  std::string name;
  std::string config;                        // JSON; empty for the one in the repository
  std::map<std::string, std::string> files;  // content by path, in place of the repository's
};

// An object in the server's memory: means nothing here but can be handed back.
using ServerAddress = std::uint64_t;

// What the server asks for.
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
struct UnknownCommand {
  std::int32_t number;
};
using Command =
    std::variant<AutoCompleteCommand, InitializeCommand, ExecuteCommand, FinalizeCommand, UnknownCommand>;

// What the stub answers. The text of a Failure is what users see in the load error or in the response.
struct Failure {
  std::string text;
};
using AutoCompleteAnswer = std::variant<std::string, Failure>;  // the completed configuration, JSON
using InitializeAnswer = std::optional<Failure>;

// A failed batch. Each request's response factory in the server must be deleted exactly once: by the server,
// unless the stub says here that it has seen to all of them.
struct ExecuteFailure {
  std::string text;
  bool factories_deleted = false;
};
// One entry for each request, in order, empty where nothing is to be sent now; no entries at all where all
// responses come by senders.
using ExecuteAnswer = std::variant<std::vector<std::optional<Response>>, ExecuteFailure>;

}  // namespace envpack::abi
