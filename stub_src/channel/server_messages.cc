#include "channel/server_messages.h"

#include <pthread.h>

#include <cstdio>
#include <exception>
#include <thread>
#include <utility>
#include <variant>

namespace envpack::channel {

void ServeServerMessages(abi::Wire& wire, std::shared_ptr<Streams> streams, ReadinessHandler on_probe) {
  const auto handle = [streams = std::move(streams),
                       on_probe = std::move(on_probe)](abi::ServerMessage message) {
    if (auto* response = std::get_if<abi::InferResponse>(&message)) {
      streams->Deliver(std::move(*response));
    } else {
      on_probe(std::get<std::unique_ptr<abi::ReadinessProbe>>(std::move(message)));
    }
  };
  std::thread thread([&wire, handle] {
    try {
      while (wire.ServeServerMessage(handle)) {
      }
    } catch (const std::exception& error) {
      std::fprintf(stderr, "envpack stub: no further message of the server can be received: %s\n",
                   error.what());
    }
  });
  pthread_setname_np(thread.native_handle(), "pbstub-rx");
  thread.detach();
}

}  // namespace envpack::channel
