#include "channel/unasked.h"

#include <pthread.h>

#include <cstdio>
#include <exception>
#include <thread>
#include <utility>

namespace envpack::channel {

void ServeUnaskedMessages(abi::Wire& wire, std::shared_ptr<Streams> streams) {
  std::thread thread([&wire, streams = std::move(streams)] {
    try {
      while (wire.ServeUnasked([&](abi::InferResponse response) { streams->Deliver(std::move(response)); })) {
      }
    } catch (const std::exception& error) {
      std::fprintf(stderr, "envpack stub: a message of the server could not be served: %s\n", error.what());
    }
  });
  pthread_setname_np(thread.native_handle(), "pbstub-rx");
  thread.detach();
}

}  // namespace envpack::channel
