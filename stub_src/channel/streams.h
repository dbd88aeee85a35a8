// Responses to the requests that a model has sent to decoupled models.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "abi/wire.h"

namespace envpack::channel {

// The responses to one request, in order. Filled by one thread, emptied by others.
class Stream {
 public:
  // Waits for the next response. Nothing may be taken after one that is the last.
  abi::InferResponse Take();

 private:
  friend class Streams;
  // `arrival` is its place among all responses that have come so far.
  void Put(std::uint64_t arrival, abi::InferResponse response);

  std::mutex mutex_;
  std::condition_variable filled_;
  std::multimap<std::uint64_t, abi::InferResponse> responses_;  // by arrival
};

// All streams of this stub, by the names that the server gives them. Any thread; none of it may be called
// with the GIL held, since most of it waits for the server.
//
// Up to 25.03 the server does not say to which stream an error belongs. If only one is open that is no
// question. Otherwise each gets the error, and if it was the last response of one of them, the iteration of
// each ends: a reader who is told too much is better off than one who waits for ever.
class Streams {
 public:
  struct Opened {
    abi::StreamId id;  // for Close() and Abandon()
    std::shared_ptr<Stream> stream;
  };

  explicit Streams(abi::Wire& wire) : wire_(wire) {}

  // Runs a request and waits for its first response, which the stream begins with. Throws what Wire::Infer()
  // throws.
  Opened Ask(const abi::Request& request);

  // A stream of nothing but this error.
  static Opened OnlyError(abi::Error error);

  // A further response has come.
  void Deliver(abi::InferResponse response);

  // The last response has been taken: the server may forget the stream.
  void Close(abi::StreamId id);

  // Nobody takes responses any more. The server goes on sending them, so the stream is closed by the last.
  void Abandon(abi::StreamId id);

  // Has the server cancel the request, unless its last response has been taken.
  void Cancel(abi::StreamId id);

  // Abandons all streams and waits some seconds for their ends.
  void End();

 private:
  static constexpr std::uint64_t kNever = UINT64_MAX;

  struct Entry {
    std::shared_ptr<Stream> stream = std::make_shared<Stream>();
    bool has_begun = false;           // its first response is known
    std::uint64_t ended_at = kNever;  // when its last came
    bool is_abandoned = false;
    int cancelling = 0;  // how many ask the server to cancel it; it must know the name until then

    bool HasEnded() const { return ended_at != kNever; }
  };
  using Entries = std::unordered_map<abi::StreamId, Entry>;
  // An error that may belong to a stream whose first response has not come yet.
  struct EarlyError {
    std::uint64_t arrival;
    abi::InferResponse error;
    std::size_t candidates;  // how many such streams there are still
    bool is_certain;         // there was no other stream
  };

  Opened Open(abi::InferResponse first);
  void TakeEarlyErrors(abi::StreamId id, Entry* entry);
  Entry& Find(abi::StreamId id);
  bool DeliverTo(Entry& entry, abi::InferResponse response);
  bool DeliverNameless(abi::InferResponse error, abi::StreamId* ended);

  abi::Wire& wire_;
  std::mutex mutex_;
  std::condition_variable closed_;
  Entries entries_;
  std::deque<EarlyError> early_errors_;
  std::uint64_t arrivals_ = 0;
  std::size_t asking_ = 0;     // requests whose first response has not come
  std::size_t headless_ = 0;   // streams that began with an error, so that their name is not known yet
  std::size_t lost_ends_ = 0;  // streams that ended with an error that could not be told from another's
};

}  // namespace envpack::channel
