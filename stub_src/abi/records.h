// The records of the protocol that the stub reads or writes, with the layout of each release.
// tests/native/abi checks the layouts for every release.
//
// A Handle field is the offset of another counted block. In the server some records derive from others. They
// are written flat here, because the compiler puts the first field of a derived record into the padding of
// its base (ResponseBatch::batch_size has offset 92, not 96).
#pragma once

#include <pthread.h>

#include <cstdint>
#include <type_traits>

#include "abi/release.h"
#include "abi/traits.h"
#include "shm/region.h"

namespace envpack::abi::records {

using shm::Handle;

// Pushed instead of a message's handle: the startup message, or an acknowledgement.
inline constexpr std::int64_t kDummy = 0;

// A bool in a record. The server may leave it uninitialised, and a C++ bool that is neither 0 nor 1 is
// undefined behaviour.
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
  Flag has_readiness;  // from 26.03 on, padding before
  pthread_mutex_t parent_health_mutex;
  pthread_mutex_t stub_health_mutex;
  Handle stub_message_queue;
  Handle parent_message_queue;
  Handle stub_to_parent_mq;
  Handle parent_to_stub_mq;
  Handle memory_manager_message_queue;
};

struct Message {
  std::int32_t command;
  Handle args;
  Flag inline_response;
  Handle response_handle;
  Handle response_mutex;
  Handle response_cond;
};

// `data` is a separate block. In the inline form the bytes follow the record and `data` is unused.
struct String {
  Handle data;
  std::uint64_t length;
};

struct Pair {
  Handle key;
  Handle value;
};

struct Dict {
  std::uint32_t length;
  Handle values;
};

struct Error {
  std::int32_t code;
  Handle message;
};

struct InitializeResponse {
  Flag has_error;
  Flag is_error_set;
  Handle error;
};

struct AutoCompleteResponse {
  Flag has_error;
  Flag is_error_set;
  Handle error;
  Flag has_model_config;
  Handle model_config;
};

// Followed by `batch_size` handles of Requests.
struct RequestBatch23_04 {
  std::uint32_t batch_size;
  Handle gpu_buffers;  // a block of handles of Memory records
  std::uint32_t gpu_buffers_count;
};
struct RequestBatch23_06 {
  std::uint32_t batch_size;
  Handle gpu_buffers;  // a GpuBuffers
};
template <Release kEpoch>
using RequestBatch =
    std::conditional_t<Traits<kEpoch>::kHasBufferRecord, RequestBatch23_06, RequestBatch23_04>;

// Followed by the handles of the requested output names, the handles of the input tensors, and up to 24.03
// three inline Strings: model name, request id, parameters.
struct Request23_04 {
  std::uint64_t correlation_id;
  std::uint32_t input_count;
  std::uint32_t requested_output_count;
  std::int64_t model_version;
  std::uint32_t flags;
  std::int64_t address;
  std::int64_t response_factory_address;
  Flag is_decoupled;
  std::uint32_t timeout_us;
  std::int32_t preferred_memory_type;
  std::int64_t preferred_device_id;
};
struct Request23_08 {
  std::uint64_t correlation_id;
  std::uint32_t input_count;
  std::uint32_t requested_output_count;
  std::int64_t model_version;
  std::uint32_t flags;
  std::int64_t address;
  std::int64_t response_factory_address;
  Flag is_decoupled;
  std::uint32_t timeout_us;
  std::int32_t preferred_memory_type;
  std::int64_t preferred_device_id;
  std::uint64_t trace;  // address in the server
};
struct Request23_11 {
  std::uint64_t correlation_id;
  std::uint32_t input_count;
  std::uint32_t requested_output_count;
  std::int64_t model_version;
  std::uint32_t flags;
  std::int64_t address;
  std::int64_t response_factory_address;
  Flag is_decoupled;
  std::uint32_t timeout_us;
  std::int32_t preferred_memory_type;
  std::int64_t preferred_device_id;
  std::uint64_t trace;  // address in the server
  std::uint32_t release_flags;
};
struct Request23_12 {
  std::uint64_t correlation_id;
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
  std::uint64_t trace;  // address in the server; handle of a Trace from 24.03 on
  std::uint32_t release_flags;
};
struct Request24_04 {
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
  std::uint64_t trace;  // handle of a Trace
  std::uint32_t release_flags;
  Handle correlation_id;
  Handle model_name;
  Handle request_id;
  Handle parameters;
};
template <Release kEpoch>
using Request = std::conditional_t<
    Traits<kEpoch>::kHasStringRecords, Request24_04,
    std::conditional_t<Traits<kEpoch>::kHasLongTimeout, Request23_12,
                       std::conditional_t<Traits<kEpoch>::kHasReleaseFlags, Request23_11,
                                          std::conditional_t<Traits<kEpoch>::kHasTracePointer, Request23_08,
                                                             Request23_04>>>>;

struct CorrelationId {
  Handle text;
  std::uint64_t number;
  std::int32_t type;
};
inline constexpr std::int32_t kCorrelationIdIsText = 1;

// From 24.03 on.
struct Trace {
  Handle context;
  std::uint64_t server_trace;
};

// Followed by the dimensions, the inline name and, if `memory` is 0, a Memory record with its data. What
// follows the name is not aligned.
struct Tensor {
  Handle memory;
  std::int32_t dtype;
  std::uint64_t dims_count;
};

struct Memory23_04 {
  std::uint64_t gpu_pointer_offset;
  std::int32_t memory_type;
  std::int64_t memory_type_id;
  std::uint64_t byte_size;
  Flag is_cuda_handle_set;
  std::uint64_t release_id;
};
struct Memory23_11 {
  std::uint64_t gpu_pointer_offset;
  Flag use_cuda_shared_pool;
  std::uint64_t cuda_pool_offset;
  std::int32_t memory_type;
  std::int64_t memory_type_id;
  std::uint64_t byte_size;
  std::uint64_t release_id;
};
template <Release kEpoch>
using Memory = std::conditional_t<Traits<kEpoch>::kHasPoolOffsets, Memory23_11, Memory23_04>;

// Destinations for the bytes of GPU tensors: `buffers` is a block of handles of Memory records. Before 23.06
// a 64-bit count followed by the handles takes the place of this record.
struct GpuBuffers {
  Flag success;
  Handle error;
  Handle buffers;
  std::uint32_t buffer_count;
};

// Followed by the handles of the output tensors. `error` is a String before 23.09, then an Error.
struct Response23_04 {
  std::uint32_t outputs_size;
  Handle error;
  Flag has_error;
  Flag is_error_set;
  std::uint64_t stream_id;
  Flag is_last_response;
};
struct Response25_02 {
  std::uint32_t outputs_size;
  Handle parameters;  // required unless there is an error
  Handle error;
  Flag has_error;
  Flag is_error_set;
  std::uint64_t stream_id;
  Flag is_last_response;
};
template <Release kEpoch>
using Response = std::conditional_t<Traits<kEpoch>::kHasResponseParameters, Response25_02, Response23_04>;

// Followed by `batch_size` handles of Responses. In an answer to Execute, from 24.10 on, the record lies in
// the same block as the message. In the server's answer to a BLS request one handle follows, whatever
// `batch_size` is.
struct ResponseBatch23_04 {
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  Flag waiting_on_stub;
  std::uint32_t batch_size;
  Handle error;
  Flag has_error;
  Flag cleanup;
  Flag is_error_set;
  std::uint32_t response_size;
};
struct ResponseBatch24_10 {
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
template <Release kEpoch>
using ResponseBatch =
    std::conditional_t<Traits<kEpoch>::kAnswersInOneBlock, ResponseBatch24_10, ResponseBatch23_04>;

struct Log {
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  Flag waiting_on_stub;
  Handle file;
  std::int32_t line;
  Handle message;
  std::int32_t level;
};

struct ResponseSend23_04 {
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
  std::uint32_t gpu_buffers_count;
  std::uint32_t flags;
};
struct ResponseSend23_06 {
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
template <Release kEpoch>
using ResponseSend =
    std::conditional_t<Traits<kEpoch>::kHasBufferRecord, ResponseSend23_06, ResponseSend23_04>;

// `mutex` and `condition` are unused; those of the message are used instead.
struct Cleanup {
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  Flag waiting_on_stub;
  std::int64_t id;
};

struct IsCancelled {
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  Flag waiting_on_stub;
  std::int64_t response_factory_address;
  std::int64_t request_address;
  Flag is_cancelled;
};

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

struct MetricFamily {
  Handle name;
  Handle description;
  std::int32_t kind;
  std::uint64_t metric_family_address;
};

// From 23.05 on.
struct Metric23_05 {
  Handle labels;
  double operation_value;
  std::uint64_t metric_address;
  std::uint64_t metric_family_address;
};
struct Metric24_08 {
  Handle labels;
  Handle buckets;  // a block with a Memory record and doubles, or 0
  double operation_value;
  std::uint64_t metric_address;
  std::uint64_t metric_family_address;
};
template <Release kEpoch>
using Metric = std::conditional_t<Traits<kEpoch>::kMetricsHaveBuckets, Metric24_08, Metric23_05>;

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

struct ModelLoaderRequest {
  Handle name;
  Handle version;
  Flag unload_dependents;
  Handle config;
  Handle files;
};

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

// From 25.04 on.
struct CancelStream {
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  Flag waiting_on_stub;
  std::uint64_t stream_id;
  Flag is_cancelled;
};

// From 26.03 on.
struct UserModelReadiness {
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  Flag waiting_on_stub;
  Flag is_ready;
  Flag function_exists;
  Flag has_error;
  Flag is_error_set;
  Handle error;
};

}  // namespace envpack::abi::records
