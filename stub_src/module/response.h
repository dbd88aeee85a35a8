// pb_utils.InferenceResponse and InferenceResponseSender.
#pragma once

#include <pybind11/pybind11.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "abi/values.h"
#include "abi/wire.h"
#include "base/forks.h"
#include "module/tensor.h"

namespace envpack::module {

// Create and destroy it with the GIL.
class InferenceResponse {
 public:
  // Throws ModelException if a tensor is null.
  InferenceResponse(std::vector<std::shared_ptr<Tensor>> outputs, std::optional<abi::Error> error,
                    std::string parameters = "");

  // A response from the server.
  explicit InferenceResponse(abi::Response value);

  const std::vector<std::shared_ptr<Tensor>>& outputs() const { return outputs_; }
  const std::optional<abi::Error>& error() const { return error_; }
  const std::string& parameters() const { return parameters_; }

  // Removes the outputs that are not requested from outputs(), as the official stub does; an empty set
  // requests all. They live as long as this response: another request may still be sending them.
  void Prune(const std::set<std::string>& requested);

  // Refers to the bytes of the outputs: valid as long as this response lives.
  abi::Response ToValue() const;

 private:
  std::vector<std::shared_ptr<Tensor>> outputs_;
  std::vector<std::shared_ptr<Tensor>> pruned_;
  std::optional<abi::Error> error_;
  std::string parameters_;  // a JSON object, or empty
};

// Throws ModelException if the response has parameters and the server lacks that feature.
void RequireParameters(const abi::Wire& wire, const InferenceResponse& response);

// One for each request, shared by the request and the model. Owns the request's response factory in the
// server, which must be deleted exactly once: with the final response, with the answer to the batch or, if
// the request is never answered, with the last reference to the sender.
//
// Send(), Fail() and IsCancelled() may be called from any thread, with the GIL.
class ResponseSender {
 public:
  // `wire` must outlive the sender. It is null for a request of the model.
  ResponseSender(abi::Wire* wire, const abi::Request& request, bool decoupled);
  ~ResponseSender();

  // Throws ModelException in a process that the model has forked, where no request can be answered.
  void RequireOwner() const;

  // Throws ModelException if the response is not allowed, or if the server reports an error.
  void Send(const std::shared_ptr<InferenceResponse>& response, std::uint32_t flags);

  // Ends the request with an error. Returns whether that was possible: it may have ended.
  bool Fail(const std::string& text) noexcept;

  // Has the last reference to the sender do that, unless the request is rescheduled. Otherwise its client
  // would wait for ever.
  void FailWhenLost(const std::string& text) { loss_ = text; }

  // Whether only the end is missing: after the only response of a request that is not decoupled.
  bool IsComplete() {
    const std::lock_guard lock(mutex_);
    return !decoupled_ && state_.has_responded;
  }

  void SetRescheduled(bool is_rescheduled) { is_rescheduled_ = is_rescheduled; }
  bool IsRescheduled() const { return is_rescheduled_; }

  bool IsCancelled();

  // Closes the sender because execute() has returned a response for the request. Throws like Send().
  void CloseForReturn() {
    const std::lock_guard lock(mutex_);
    Claim(true, 0);
    state_.closed = true;
  }

  // Closes the sender because the batch has failed.
  void Close() {
    const std::lock_guard lock(mutex_);
    state_.closed = state_.has_failed = true;
  }

  // Waits for what other threads send and query: the server is about to delete the request. Afterwards
  // IsCancelled() returns the last known value. Call it without the GIL, and after the sender is closed.
  void EndUses() { AwaitOtherUses(0); }

  // Whether the request has a response factory; in the default mode it does from 24.06 on.
  bool HasFactory() const { return origin_.response_factory != 0; }

  // Whether a final response has deleted the response factory, or is deleting it.
  bool IsFactoryDeleted() {
    const std::lock_guard lock(mutex_);
    return state_.factory_deleted;
  }

  // Call it when the server deletes the response factory with the answer to the batch.
  void MarkFactoryDeleted() {
    const std::lock_guard lock(mutex_);
    state_.factory_deleted = true;
  }

  // Requests the deletion of the response factory unless it is deleted. Call it without the GIL.
  void DeleteFactory();

 private:
  // The state that sending changes.
  struct State {
    bool factory_deleted = false;  // also true for requests without a factory
    bool closed = false;
    bool has_failed = false;  // with its batch
    bool has_responded = false;
    bool queries_ended = false;
  };

  // A message about the request that the server has not finished yet.
  struct Use {
    ~Use() { sender.EndUse(); }
    ResponseSender& sender;
  };

  void Claim(bool has_response, std::uint32_t flags);
  void Unclaim(const State& before, std::uint32_t flags);
  void AwaitOtherUses(int own);
  void EndUse();

  abi::Wire* const wire_;
  const forks::OwnerProcess owner_process_;
  const bool decoupled_;
  const std::set<std::string> requested_outputs_;
  std::string loss_;             // with the GIL
  bool is_rescheduled_ = false;  // with the GIL
  std::mutex sending_;           // a server mixes up the bytes of two responses that it gets at once
  std::mutex mutex_;             // guards the members below; never held during a wait
  abi::Origin origin_;
  State state_;
  bool cancelled_ = false;
  int uses_ = 0;
  std::condition_variable use_ended_;
};

}  // namespace envpack::module
