// A backend of Triton in its C interface that returns the first input as the first output of each request.
//
// The functions are those of Triton's tritonbackend.h as far as they are used here; the server exports them.
#include <cstdint>
#include <cstring>

extern "C" {
struct Error;
struct Request;
struct Response;
struct Input;
struct Output;
struct Instance;

Error* TRITONBACKEND_RequestInputByIndex(Request*, uint32_t index, Input**);
Error* TRITONBACKEND_RequestOutputName(Request*, uint32_t index, const char**);
Error* TRITONBACKEND_RequestRelease(Request*, uint32_t flags);
Error* TRITONBACKEND_InputProperties(Input*, const char** name, int* type, const int64_t** shape,
                                     uint32_t* rank, uint64_t* size, uint32_t* buffers);
Error* TRITONBACKEND_InputBuffer(Input*, uint32_t index, const void**, uint64_t* size, int* memory,
                                 int64_t* device);
Error* TRITONBACKEND_ResponseNew(Response**, Request*);
Error* TRITONBACKEND_ResponseOutput(Response*, Output**, const char* name, int type, const int64_t* shape,
                                    uint32_t rank);
Error* TRITONBACKEND_OutputBuffer(Output*, void**, uint64_t size, int* memory, int64_t* device);
Error* TRITONBACKEND_ResponseSend(Response*, uint32_t flags, Error*);

Error* TRITONBACKEND_ModelInstanceExecute(Instance*, Request** requests, uint32_t count) {
  constexpr uint32_t kFinal = 1, kReleaseAll = 1;
  for (uint32_t number = 0; number < count; ++number) {
    Input* input;
    Output* output;
    Response* response;
    const char* name;
    const int64_t* shape;
    void* to;
    int type, memory = 0;
    int64_t device = 0;
    uint32_t rank, buffers;
    uint64_t size, written = 0;
    TRITONBACKEND_RequestInputByIndex(requests[number], 0, &input);
    TRITONBACKEND_InputProperties(input, &name, &type, &shape, &rank, &size, &buffers);
    TRITONBACKEND_RequestOutputName(requests[number], 0, &name);
    TRITONBACKEND_ResponseNew(&response, requests[number]);
    TRITONBACKEND_ResponseOutput(response, &output, name, type, shape, rank);
    TRITONBACKEND_OutputBuffer(output, &to, size, &memory, &device);
    for (uint32_t part = 0; part < buffers; ++part) {
      const void* from;
      uint64_t length;
      TRITONBACKEND_InputBuffer(input, part, &from, &length, &memory, &device);
      std::memcpy(static_cast<char*>(to) + written, from, length);
      written += length;
    }
    TRITONBACKEND_ResponseSend(response, kFinal, nullptr);
    TRITONBACKEND_RequestRelease(requests[number], kReleaseAll);
  }
  return nullptr;
}
}
