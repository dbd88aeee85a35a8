#include "channel/unasked.h"

#include <pthread.h>

#include <cstdio>
#include <exception>

namespace envpack::channel {

UnaskedMessages::UnaskedMessages(abi::Wire& wire) {
  std::thread thread([&wire] {
    try {
      while (wire.ServeUnasked()) {
      }
    } catch (const std::exception& error) {
      std::fprintf(stderr, "envpack stub: a message of the server could not be served: %s\n", error.what());
    }
  });
  pthread_setname_np(thread.native_handle(), "pbstub-rx");
  thread.detach();
}

}  // namespace envpack::channel
