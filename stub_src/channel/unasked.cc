#include "channel/unasked.h"

#include <pthread.h>

#include <cstdio>
#include <exception>
#include <thread>
#include <utility>

namespace envpack::channel {

namespace {

class Listener final : public abi::UnaskedListener {
 public:
  Listener(std::shared_ptr<Streams> streams, TakeReadinessQuestion take)
      : streams_(std::move(streams)), take_(std::move(take)) {}
  void Take(abi::InferResponse response) override { streams_->Deliver(std::move(response)); }
  void Take(std::unique_ptr<abi::ReadinessQuestion> question) override { take_(std::move(question)); }

 private:
  std::shared_ptr<Streams> streams_;
  TakeReadinessQuestion take_;
};

}  // namespace

void ServeUnaskedMessages(abi::Wire& wire, std::shared_ptr<Streams> streams, TakeReadinessQuestion take) {
  std::thread thread([&wire, listener = Listener(std::move(streams), std::move(take))]() mutable {
    try {
      while (wire.ServeUnasked(listener)) {
      }
    } catch (const std::exception& error) {
      std::fprintf(stderr, "envpack stub: a message of the server could not be served: %s\n", error.what());
    }
  });
  pthread_setname_np(thread.native_handle(), "pbstub-rx");
  thread.detach();
}

}  // namespace envpack::channel
