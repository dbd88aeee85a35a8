// Streams of responses of other models, used by many threads at once. Also run under the thread sanitizer.
#include "channel/streams.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "check.h"
#include "epoch_pair.h"

using namespace envpack;
using test::Pair;
using test::PeerResponse;

namespace {

constexpr int kThreads = 3;
constexpr int kRounds = 20;
constexpr int kResponses = 3;  // of each stream

// The server: answers each request with a stream, until every stream has been ended. One thread serves the
// stub's requests, another sends the responses after the first: each may wait for the stub.
class StreamServer {
 public:
  explicit StreamServer(test::Peer& peer) : peer_(peer) {}

  void Serve() {
    std::thread sender([this] { SendFurtherResponses(); });
    while (ended.size() < kThreads * kRounds) {
      if (peer_.NextRequestIs("InferStreamExecRequest")) {
        const std::uint64_t stream = ++started_;
        peer_.ServeInfer(Response(stream, 1));
        const std::lock_guard lock(mutex_);
        begun_.push_back(stream);
        has_begun_.notify_one();
      } else if (peer_.NextRequestIs("CancelStream")) {
        CHECK_EQ(ended.count(peer_.TakeStreamCancel()), 0u);
      } else {
        CHECK(ended.insert(peer_.TakeStreamCleanup()).second);
      }
    }
    sender.join();
  }

  std::set<std::uint64_t> ended;

 private:
  void SendFurtherResponses() {
    for (int i = 0; i < kThreads * kRounds; ++i) {
      std::unique_lock lock(mutex_);
      has_begun_.wait(lock, [this] { return !begun_.empty(); });
      const std::uint64_t stream = begun_.front();
      begun_.pop_front();
      lock.unlock();
      for (int number = 2; number <= kResponses; ++number) peer_.SendStreamResponse(Response(stream, number));
    }
  }

  static PeerResponse Response(std::uint64_t stream, int number) {
    PeerResponse response;
    response.stream = stream;
    response.is_last = number == kResponses;
    return response;
  }

  test::Peer& peer_;
  std::uint64_t started_ = 0;
  std::mutex mutex_;
  std::condition_variable has_begun_;
  std::deque<std::uint64_t> begun_;
};

// What a model does with a stream: it reads all of it, cancels it from another thread meanwhile, or drops it.
int Use(channel::Streams& streams, int round) {
  const auto opened = streams.Start(abi::Request{});
  if (round % 3 == 2) {
    streams.Abandon(opened.id);
    return kResponses;
  }
  std::thread canceller;
  if (round % 3 == 1) canceller = std::thread([&] { streams.Cancel(opened.id); });
  int taken = 1;
  while (!opened.stream->Take().is_last) ++taken;
  streams.Close(opened.id);
  if (canceller.joinable()) canceller.join();
  return taken;
}

}  // namespace

CASE(streams_of_many_threads_are_each_read_and_ended_once) {
  Pair pair(2504);
  const std::uint64_t before = pair.peer.region.FreeBytes();
  {
    channel::Streams streams(*pair.wire);
    std::thread receiver([&] {
      const auto deliver = [&](abi::ServerMessage message) {
        streams.Deliver(std::move(std::get<abi::InferResponse>(message)));
      };
      while (pair.wire->ServeServerMessage(deliver)) {
      }
    });
    std::atomic<int> complete{0};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int round = 0; round < kRounds; ++round) {
          complete += Use(streams, thread + round) == kResponses;
        }
      });
    }
    StreamServer server(pair.peer);
    server.Serve();
    for (std::thread& thread : threads) thread.join();
    pair.peer.to_stub_messages.Push(0);
    receiver.join();
    CHECK_EQ(complete.load(), kThreads * kRounds);
  }
  pair.peer.Drop();
  CHECK_EQ(pair.peer.region.FreeBytes(), before);
}
