// Streams of responses to BLS requests to decoupled models.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "abi/wire.h"

namespace envpack::channel {

// The responses to one request, in order. One thread adds responses, others take them.
class Stream {
 public:
  // Waits for the next response. Do not call it after the last response.
  abi::InferResponse Take();

 private:
  friend class Streams;
  // `arrival` is the response's position among all responses that have arrived.
  void Put(std::uint64_t arrival, abi::InferResponse response);

  std::mutex mutex_;
  std::condition_variable filled_;
  std::multimap<std::uint64_t, abi::InferResponse> responses_;  // by arrival
};

// All streams of this stub, by the ids that the server assigns. Any thread. Do not call any function with the
// GIL held, since most of them wait for the server.
//
// Up to 25.03 the server does not report to which stream an error belongs. If only one stream is open, it
// gets the error. Otherwise every open stream gets it, and if the error is the last response of one of them,
// iteration over each ends: a superfluous error is better than waiting forever.
class Streams {
 public:
  struct Opened {
    abi::StreamId id;  // for Close() and Abandon()
    std::shared_ptr<Stream> stream;
  };

  explicit Streams(abi::Wire& wire) : wire_(wire) {}

  // Sends a request and waits for the first response of its stream. If the server cannot run the request, the
  // stream contains only that error.
  Opened Start(const abi::Request& request);

  // Adds a response that has arrived.
  void Deliver(abi::InferResponse response);

  // Ends a stream whose last response has been taken. If the region has no room for the message to the
  // server, the next stream that ends sends it.
  void Close(abi::StreamId id) noexcept;

  // Discards further responses. The server continues to send them, so the last one closes the stream.
  void Abandon(abi::StreamId id) noexcept;

  // Requests the cancellation of the request, unless its last response has been taken.
  void Cancel(abi::StreamId id);

  // Abandons all streams and waits some seconds until they end.
  void End();

 private:
  static constexpr std::uint64_t kNever = UINT64_MAX;

  struct Entry {
    std::shared_ptr<Stream> stream = std::make_shared<Stream>();
    bool has_begun = false;           // the first response has arrived
    std::uint64_t ended_at = kNever;  // arrival of the last response
    bool is_abandoned = false;
    int cancelling = 0;  // running Cancel() calls; the server must know the id until they return

    bool HasEnded() const { return ended_at != kNever; }
  };
  using Entries = std::unordered_map<abi::StreamId, Entry>;
  // An error that may belong to a stream whose first response has not arrived.
  struct EarlyError {
    std::uint64_t arrival;
    abi::InferResponse error;
    std::size_t candidates;  // number of such streams
    bool is_certain;         // there is no other stream
  };

  void SendEnds() noexcept;
  void EndCancelling(abi::StreamId id);
  Opened Open(abi::InferResponse first);
  void TakeEarlyErrors(abi::StreamId id, Entry* entry);
  Entry& Find(abi::StreamId id);
  bool DeliverTo(Entry& entry, abi::InferResponse response);
  bool DeliverWithoutId(abi::InferResponse error, abi::StreamId* ended);

  abi::Wire& wire_;
  std::mutex mutex_;
  std::condition_variable closed_;
  Entries entries_;
  std::deque<EarlyError> early_errors_;
  std::vector<abi::StreamId> unsent_ends_;
  std::uint64_t arrivals_ = 0;
  std::size_t starting_ = 0;   // requests whose first response has not arrived
  std::size_t unnamed_ = 0;    // streams that began with an error, so their id is unknown
  std::size_t lost_ends_ = 0;  // streams that ended with an error that could not be assigned
};

}  // namespace envpack::channel
