// Every record of Triton 24.10's stub protocol that this stub reads or writes, with its layout pinned.
//
// A Handle field is the offset of another counted block. Records that extend another one are written flat,
// since the compiler puts the first own field into the padding of the base (ResponseBatch::batch_size lies at
// 92, not 96).
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>

#include "shm/region.h"

namespace envpack::abi::r24_10 {

using shm::Handle;

enum class CommandNumber : std::int32_t {
  kExecuteRequest = 0,
  kExecuteResponse = 1,
  kInitializeRequest = 2,
  kInitializeResponse = 3,
  kCudaPoolInitializeRequest = 4,
  kFinalizeRequest = 5,
  kFinalizeResponse = 6,
  kLoadGpuBuffers = 7,
  kInferExecRequest = 8,
  kInferStreamExecRequest = 9,
  kInferExecResponse = 10,
  kInferStreamExecResponse = 11,
  kResponseSend = 12,
  kAutoCompleteRequest = 14,
  kAutoCompleteResponse = 15,
  kLogRequest = 16,
  kStreamCleanup = 17,
  kResponseFactoryCleanup = 18,
  kMetricFamilyRequestNew = 19,
  kMetricFamilyRequestDelete = 20,
  kMetricRequestNew = 21,
  kMetricRequestDelete = 22,
  kMetricRequestValue = 23,
  kMetricRequestIncrement = 24,
  kMetricRequestSet = 25,
  kMetricRequestObserve = 26,
  kLoadModelRequest = 27,
  kUnloadModelRequest = 28,
  kModelReadinessRequest = 29,
  kIsRequestCancelled = 30,
};

// Pushed instead of a message's handle: a sign of life, or "I have read that".
inline constexpr std::int64_t kDummy = 0;

// A bool of a record. The peer writes it, or leaves there what it finds, and C++ has no meaning for a bool
// that is neither 0 nor 1.
class Flag {
 public:
  Flag() = default;
  constexpr Flag(bool value) : byte_(value ? 1 : 0) {}
  constexpr operator bool() const { return byte_ != 0; }

 private:
  std::uint8_t byte_;
};
static_assert(sizeof(Flag) == 1);

struct Control {
  Flag stub_health;
  Flag parent_health;
  Flag uses_env;
  Flag decoupled;
  pthread_mutex_t parent_health_mutex;
  pthread_mutex_t stub_health_mutex;
  Handle stub_message_queue;
  Handle parent_message_queue;
  Handle stub_to_parent_mq;
  Handle parent_to_stub_mq;
  Handle memory_manager_message_queue;
};
static_assert(sizeof(Control) == 128);
static_assert(offsetof(Control, uses_env) == 2 && offsetof(Control, decoupled) == 3);
static_assert(offsetof(Control, parent_health_mutex) == 8 && offsetof(Control, stub_health_mutex) == 48);
static_assert(offsetof(Control, stub_message_queue) == 88 &&
              offsetof(Control, memory_manager_message_queue) == 120);

struct Message {
  CommandNumber command;
  Handle args;
  Flag inline_response;
  Handle response_handle;
  Handle response_mutex;
  Handle response_cond;
};
static_assert(sizeof(Message) == 48 && offsetof(Message, args) == 8);
static_assert(offsetof(Message, inline_response) == 16 && offsetof(Message, response_handle) == 24);
static_assert(offsetof(Message, response_mutex) == 32 && offsetof(Message, response_cond) == 40);

// `data` is a block of its own; in the inline form the bytes follow the record and `data` means nothing.
struct String {
  Handle data;
  std::uint64_t length;
};
static_assert(sizeof(String) == 16 && offsetof(String, length) == 8);

struct Pair {
  Handle key;
  Handle value;
};
static_assert(sizeof(Pair) == 16);

struct Dict {
  std::uint32_t length;
  Handle values;
};
static_assert(sizeof(Dict) == 16 && offsetof(Dict, values) == 8);

struct Error {
  std::int32_t code;
  Handle message;
};
static_assert(sizeof(Error) == 16 && offsetof(Error, message) == 8);

struct InitializeResponse {
  Flag has_error;
  Flag is_error_set;
  Handle error;
};
static_assert(sizeof(InitializeResponse) == 16 && offsetof(InitializeResponse, error) == 8);

struct AutoCompleteResponse {
  Flag has_error;
  Flag is_error_set;
  Handle error;
  Flag has_model_config;
  Handle model_config;
};
static_assert(sizeof(AutoCompleteResponse) == 32 && offsetof(AutoCompleteResponse, error) == 8);
static_assert(offsetof(AutoCompleteResponse, has_model_config) == 16);
static_assert(offsetof(AutoCompleteResponse, model_config) == 24);

// Followed by `batch_size` handles of Requests.
struct RequestBatch {
  std::uint32_t batch_size;
  Handle gpu_buffers;
};
static_assert(sizeof(RequestBatch) == 16);

// Followed by the handles of the requested output names, then by those of the input tensors.
struct Request {
  std::uint32_t input_count;
  std::uint32_t requested_output_count;
  std::int64_t model_version;
  std::uint32_t flags;
  std::int64_t address;
  std::int64_t response_factory_address;
  Flag is_decoupled;
  std::uint64_t timeout_us;
  std::int32_t preferred_memory_type;
  std::int64_t preferred_device_id;
  Handle trace;
  std::uint32_t release_flags;
  Handle correlation_id;
  Handle model_name;
  Handle request_id;
  Handle parameters;
};
static_assert(sizeof(Request) == 120);
static_assert(offsetof(Request, model_version) == 8 && offsetof(Request, address) == 24);
static_assert(offsetof(Request, timeout_us) == 48 && offsetof(Request, preferred_memory_type) == 56);
static_assert(offsetof(Request, trace) == 72 && offsetof(Request, release_flags) == 80);
static_assert(offsetof(Request, correlation_id) == 88 && offsetof(Request, parameters) == 112);

struct CorrelationId {
  Handle text;
  std::uint64_t number;
  std::int32_t type;
};
inline constexpr std::int32_t kCorrelationIdIsText = 1;
static_assert(sizeof(CorrelationId) == 24 && offsetof(CorrelationId, type) == 16);

struct Trace {
  Handle context;
  std::uint64_t server_trace;
};
static_assert(sizeof(Trace) == 16);

// Followed by the dimensions, the inline name and, if `memory` is 0, a Memory record with its data. Nothing
// behind the name is aligned.
struct Tensor {
  Handle memory;
  std::int32_t dtype;
  std::uint64_t dims_count;
};
static_assert(sizeof(Tensor) == 24 && offsetof(Tensor, dtype) == 8 && offsetof(Tensor, dims_count) == 16);

struct Memory {
  std::uint64_t gpu_pointer_offset;
  Flag use_cuda_shared_pool;
  std::uint64_t cuda_pool_offset;
  std::int32_t memory_type;
  std::int64_t memory_type_id;
  std::uint64_t byte_size;
  std::uint64_t release_id;
};
static_assert(sizeof(Memory) == 56 && offsetof(Memory, memory_type) == 24 &&
              offsetof(Memory, byte_size) == 40);

// Where the server wants the bytes of GPU tensors: `buffers` is a block of handles of Memory records.
struct GpuBuffers {
  Flag success;
  Handle error;
  Handle buffers;
  std::uint32_t buffer_count;
};
static_assert(sizeof(GpuBuffers) == 32 && offsetof(GpuBuffers, error) == 8);
static_assert(offsetof(GpuBuffers, buffers) == 16 && offsetof(GpuBuffers, buffer_count) == 24);

// Followed by the handles of the output tensors.
struct Response {
  std::uint32_t outputs_size;
  Handle error;
  Flag has_error;
  Flag is_error_set;
  std::uint64_t stream_id;
  Flag is_last_response;
};
static_assert(sizeof(Response) == 40 && offsetof(Response, error) == 8 &&
              offsetof(Response, has_error) == 16);
static_assert(offsetof(Response, stream_id) == 24 && offsetof(Response, is_last_response) == 32);

// Followed by `batch_size` handles of Responses. In an answer to Execute the record sits in the message's own
// block. In the server's answer to a request of the model one handle follows, whatever `batch_size` says.
struct ResponseBatch {
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  Flag waiting_on_stub;
  std::uint32_t batch_size;
  Handle error;
  Flag has_error;
  Flag cleanup;
  Flag is_error_set;
  std::uint32_t response_size;
  Flag is_response_factory_deleted;
};
static_assert(sizeof(ResponseBatch) == 120 && offsetof(ResponseBatch, batch_size) == 92);
static_assert(offsetof(ResponseBatch, error) == 96 && offsetof(ResponseBatch, is_error_set) == 106);
static_assert(offsetof(ResponseBatch, is_response_factory_deleted) == 112);

struct Log {
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  Flag waiting_on_stub;
  Handle file;
  std::int32_t line;
  Handle message;
  std::int32_t level;
};
static_assert(sizeof(Log) == 128 && offsetof(Log, waiting_on_stub) == 88 && offsetof(Log, file) == 96);
static_assert(offsetof(Log, line) == 104 && offsetof(Log, message) == 112 && offsetof(Log, level) == 120);

struct ResponseSend {
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  Flag is_stub_turn;
  Flag has_error;
  Flag is_error_set;
  Handle error;
  std::int64_t request_address;
  std::int64_t response_factory_address;
  Handle response;
  Handle gpu_buffers;
  std::uint32_t flags;
};
static_assert(sizeof(ResponseSend) == 144 && offsetof(ResponseSend, is_stub_turn) == 88);
static_assert(offsetof(ResponseSend, error) == 96 && offsetof(ResponseSend, request_address) == 104);
static_assert(offsetof(ResponseSend, response) == 120 && offsetof(ResponseSend, flags) == 136);

// `mutex` and `condition` are not used: the message's own are.
struct Cleanup {
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  Flag waiting_on_stub;
  std::int64_t id;
};
static_assert(sizeof(Cleanup) == 104 && offsetof(Cleanup, waiting_on_stub) == 88 &&
              offsetof(Cleanup, id) == 96);

struct IsCancelled {
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  Flag waiting_on_stub;
  std::int64_t response_factory_address;
  std::int64_t request_address;
  Flag is_cancelled;
};
static_assert(sizeof(IsCancelled) == 120 && offsetof(IsCancelled, waiting_on_stub) == 88);
static_assert(offsetof(IsCancelled, response_factory_address) == 96);
static_assert(offsetof(IsCancelled, request_address) == 104 && offsetof(IsCancelled, is_cancelled) == 112);

// `message` is a MetricFamily or a Metric.
struct CustomMetrics {
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  Flag waiting_on_stub;
  Handle message;
  Flag has_error;
  Flag is_error_set;
  Handle error;
  double value;
  std::uint64_t address;
};
static_assert(sizeof(CustomMetrics) == 136 && offsetof(CustomMetrics, message) == 96);
static_assert(offsetof(CustomMetrics, has_error) == 104 && offsetof(CustomMetrics, error) == 112);
static_assert(offsetof(CustomMetrics, value) == 120 && offsetof(CustomMetrics, address) == 128);

struct MetricFamily {
  Handle name;
  Handle description;
  std::int32_t kind;
  std::uint64_t metric_family_address;
};
static_assert(sizeof(MetricFamily) == 32 && offsetof(MetricFamily, kind) == 16);
static_assert(offsetof(MetricFamily, metric_family_address) == 24);

// `buckets` is a block with a Memory record and doubles, or 0.
struct Metric {
  Handle labels;
  Handle buckets;
  double operation_value;
  std::uint64_t metric_address;
  std::uint64_t metric_family_address;
};
static_assert(sizeof(Metric) == 40 && offsetof(Metric, operation_value) == 16);
static_assert(offsetof(Metric, metric_address) == 24 && offsetof(Metric, metric_family_address) == 32);

struct ModelLoader {
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  Flag waiting_on_stub;
  Handle message;
  Flag has_error;
  Flag is_error_set;
  Handle error;
  Flag is_model_ready;
};
static_assert(sizeof(ModelLoader) == 128 && offsetof(ModelLoader, message) == 96);
static_assert(offsetof(ModelLoader, error) == 112 && offsetof(ModelLoader, is_model_ready) == 120);

struct ModelLoaderRequest {
  Handle name;
  Handle version;
  Flag unload_dependents;
  Handle config;
  Handle files;
};
static_assert(sizeof(ModelLoaderRequest) == 40 && offsetof(ModelLoaderRequest, unload_dependents) == 16);
static_assert(offsetof(ModelLoaderRequest, config) == 24 && offsetof(ModelLoaderRequest, files) == 32);

struct CudaMemoryPool {
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  Flag waiting_on_stub;
  char cuda_handle[64];
  std::int32_t device_id;
  Handle error;
  Flag has_error;
  Flag is_error_set;
};
static_assert(sizeof(CudaMemoryPool) == 176 && offsetof(CudaMemoryPool, cuda_handle) == 89);
static_assert(offsetof(CudaMemoryPool, device_id) == 156 && offsetof(CudaMemoryPool, error) == 160);
static_assert(offsetof(CudaMemoryPool, has_error) == 168);

}  // namespace envpack::abi::r24_10
