// Streams of responses of other models, used by many threads at once. Also run under the thread sanitizer.
#include "channel/streams.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "base/forks.h"
#include "check.h"
#include "epoch_pair.h"

using namespace envpack;
using test::Pair;
using test::PeerResponse;

namespace {

constexpr int kThreads = 3;
constexpr int kRounds = 20;
constexpr int kResponses = 3;  // of each stream
constexpr int kForks = 10;

// The server: answers each request with a stream, until every stream has been ended. One thread serves the
// stub's requests, another sends the responses after the first: each may wait for the stub.
class StreamServer {
 public:
  explicit StreamServer(test::Peer& peer) : peer_(peer) {}

  // `others` is the number of requests to models that are not decoupled.
  void Serve(int others = 0) {
    std::thread sender([this] { SendFurtherResponses(); });
    while (ended.size() < kThreads * kRounds || others > 0) {
      if (peer_.NextRequestIs("InferExecRequest")) {
        peer_.ServeInfer(PeerResponse{});
        --others;
      } else if (peer_.NextRequestIs("InferStreamExecRequest")) {
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

// Several threads of a model that use streams, and the thread that receives their responses.
class Users {
 public:
  explicit Users(Pair& pair) : pair_(pair), streams_(*pair.wire) {
    receiver_ = std::thread([this] {
      const auto deliver = [&](abi::ServerMessage message) {
        streams_.Deliver(std::move(std::get<abi::InferResponse>(message)));
      };
      while (pair_.wire->ServeServerMessage(deliver)) {
      }
    });
    for (int thread = 0; thread < kThreads; ++thread) {
      threads_.emplace_back([this, thread] {
        for (int round = 0; round < kRounds; ++round) {
          complete_ += Use(streams_, thread + round) == kResponses;
        }
      });
    }
  }

  // Returns how many streams were read completely, or dropped.
  int Wait() {
    for (std::thread& thread : threads_) thread.join();
    pair_.peer.to_stub_messages.Push(0);
    receiver_.join();
    return complete_;
  }

 private:
  Pair& pair_;
  channel::Streams streams_;
  std::thread receiver_;
  std::atomic<int> complete_{0};
  std::vector<std::thread> threads_;
};

// What a process that a model forks does: it drops what it has inherited, and makes a request of its own.
void ForkedProcess(abi::Wire& wire, std::optional<abi::InferResponse>& inherited) {
  try {
    inherited.reset();
    _exit(wire.Infer(abi::Request{}, false).is_last ? 0 : 1);
  } catch (...) {
    _exit(2);
  }
}

}  // namespace

CASE(streams_of_many_threads_are_each_read_and_ended_once) {
  Pair pair(2504);
  const std::uint64_t before = pair.peer.region.FreeBytes();
  {
    Users users(pair);
    StreamServer(pair.peer).Serve();
    CHECK_EQ(users.Wait(), kThreads * kRounds);
  }
  pair.peer.Drop();
  CHECK_EQ(pair.peer.region.FreeBytes(), before);
}

CASE(streams_are_used_while_the_model_forks_processes_that_make_requests) {
  forks::Watch();
  Pair pair(2504);
  const std::uint64_t before = pair.peer.region.FreeBytes();
  PeerResponse sent;
  sent.outputs = {{"OUT", 6, {4}, "four"}};
  std::optional<abi::InferResponse> kept =
      pair.Both([&] { return pair.wire->Infer(abi::Request{}, false); }, [&] { pair.peer.ServeInfer(sent); });
  pair.peer.Drop();  // from now on, the block is the stub's alone
  {
    Users users(pair);
    std::thread server([&] { StreamServer(pair.peer).Serve(kForks); });
    for (int i = 0; i < kForks; ++i) {
      const pid_t child = fork();
      if (child == 0) ForkedProcess(*pair.wire, kept);
      int status = -1;
      CHECK_EQ(waitpid(child, &status, 0), child);
      CHECK_EQ(status, 0);
    }
    server.join();
    CHECK_EQ(users.Wait(), kThreads * kRounds);
  }
  CHECK_EQ(test::BytesOf(kept->response.outputs.at(0)), "four");
  kept.reset();
  pair.peer.Drop();
  CHECK_EQ(pair.peer.region.FreeBytes(), before);
  CHECK(pair.peer.region.IsConsistent());
}
