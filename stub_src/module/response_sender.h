// pb_utils.InferenceResponseSender: answers a request when and as often as the model likes.
#pragma once

#include <pybind11/pybind11.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "abi/values.h"
#include "abi/wire.h"
#include "forks.h"
#include "module/response.h"

namespace envpack::module {

// One for each request, shared by the request and by whoever asked for it. It owns the request's response
// factory in the server, which must be deleted exactly once: with the final response, by the answer to the
// batch, or, if nobody ever answers, when the last reference to the sender goes.
//
// Send() and IsCancelled() may be called from any thread, with the GIL.
class ResponseSender {
 public:
  // `wire` must outlive the sender; it is null for a request that the model has made itself.
  ResponseSender(abi::Wire* wire, const abi::Request& request, bool decoupled);
  ~ResponseSender();
  ResponseSender(const ResponseSender&) = delete;
  ResponseSender& operator=(const ResponseSender&) = delete;

  // Throws ModelException if the contract does not allow it, or the server reports an error.
  void Send(const std::shared_ptr<InferenceResponse>& response, std::uint32_t flags);

  bool IsCancelled();

  // execute() has returned a response for this request: nothing more may be sent. Throws like Send().
  void CloseForReturn();

  // Nothing more may be sent, because the batch has failed.
  void Close();

  // From now on IsCancelled() says what it knows, and no question is under way any more: the server is about
  // to delete what it would look at. Call it without the GIL.
  void EndQueries();

  // Whether the request came with a response factory; in the default mode it does from 24.06 on.
  bool HasFactory() const { return origin_.response_factory != 0; }

  // Whether the response factory has been, or is being, deleted by a final response.
  bool IsFactoryGone();

  // The server deletes the response factory as part of its reading the answer to the batch.
  void ForgetFactory();

  // Has the server delete the response factory, if that is still to be done. Call it without the GIL.
  void DropFactory();

 private:
  // What sending changes.
  struct State {
    bool factory_gone = false;  // also true of a request that never had one
    bool closed = false;
    bool has_responded = false;
    bool queries_ended = false;
  };

  void Claim(bool has_response, std::uint32_t flags);
  void Unclaim(const State& before, std::uint32_t flags);

  abi::Wire* const wire_;
  const forks::Maker maker_;
  const bool decoupled_;
  const std::set<std::string> requested_outputs_;
  std::mutex mutex_;  // guards what follows; never held while waiting for anything
  abi::Origin origin_;
  State state_;
  bool cancelled_ = false;
  int queries_ = 0;  // under way
  std::condition_variable query_done_;
};

void BindResponseSender(pybind11::module_& module);

}  // namespace envpack::module
