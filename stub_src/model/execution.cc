#include "model/execution.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "channel/refusal.h"
#include "module/error.h"
#include "module/logger.h"
#include "module/server_link.h"

namespace py = pybind11;

namespace envpack::model {

namespace {

std::string LossText(const std::string& instance, const std::string& loss, const std::string& advice) {
  return "Python model '" + instance + "' has returned from execute without a final response, and has " +
         loss + ": nothing can answer any more. " + advice;
}

std::string LossAtReturn(const std::string& instance, bool is_decoupled) {
  return LossText(instance, "kept neither a request nor a response sender",
                  is_decoupled ? "Send the responses and the final flag with request.get_response_sender()."
                               : "Return a list with one InferenceResponse for each request.");
}

std::string LaterLoss(const std::string& instance) {
  return LossText(instance, "since dropped the request and its response sender",
                  "Send the final flag also if the thread or task that answers fails.");
}

}  // namespace

Execution::Execution(std::vector<abi::Request> values, const std::string& name, abi::Wire& wire)
    : name_(name), wire_(wire) {
  for (abi::Request& value : values) {
    requests_.push_back(std::make_shared<module::InferenceRequest>(std::move(value), wire));
  }
}

abi::ExecuteAnswer Execution::Run(const py::object& execute, EventLoop& loop) {
  py::object result = execute(requests_);
  if (wire_.Decoupled()) {
    RunDecoupled(result, loop);
    return {};
  }
  if (EventLoop::IsCoroutine(result)) result = loop.Await(result);
  return Take(result);
}

void Execution::RunDecoupled(const py::object& result, EventLoop& loop) {
  if (EventLoop::IsCoroutine(result)) {
    Spawn(result, loop);
  } else if (!result.is_none()) {
    throw module::ModelException("Python model '" + name_ +
                                 "' is using the decoupled mode and the execute function must return None.");
  } else {
    FailLost();
  }
}

// As in a batch whose execute() raises, an exception ends all requests. What other tasks have taken over may
// go on after the coroutine has returned.
void Execution::Spawn(const py::object& coroutine, EventLoop& loop) const {
  auto senders = std::make_shared<std::vector<std::shared_ptr<module::ResponseSender>>>();
  for (const auto& request : requests_) senders->push_back(request->sender());
  loop.Spawn(coroutine, [senders, name = name_](const std::optional<abi::Failure>& failure) {
    const std::string text =
        channel::RequestFailure(name, failure ? failure->text : LossAtReturn(name, true));
    if (failure) module::LogFailure(text);
    for (const auto& sender : *senders) {
      if (sender->IsFactoryDeleted() || sender->IsRescheduled()) continue;
      if (failure) {
        sender->Fail(text);
      } else {
        sender->FailWhenLost(text);
      }
    }
    senders->clear();  // asyncio keeps this function until garbage is collected
  });
}

// Of a request that is not answered: the model can answer as long as it refers to it or to its sender.
bool Execution::IsLost(std::size_t index) const {
  const auto& request = requests_[index];
  return request.use_count() == 1 && request->sender().use_count() == 1 && !request->IsRescheduled();
}

// What the model still refers to can be lost later, for example with a thread that raises. Requests without a
// response factory count as answered.
void Execution::FailLost() const {
  std::vector<module::ResponseSender*> lost;
  std::vector<module::ResponseSender*> kept;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    module::ResponseSender* const sender = requests_[i]->sender().get();
    if (!IsAnswered(i) && !sender->IsFactoryDeleted()) (IsLost(i) ? lost : kept).push_back(sender);
  }
  if (lost.empty() && kept.empty()) return;
  const std::string text = LossAtReturn(name_, wire_.Decoupled());
  const auto is_complete = [](module::ResponseSender* sender) { return sender->IsComplete(); };
  if (lost.size() == requests_.size() && std::none_of(lost.begin(), lost.end(), is_complete)) {
    throw module::ModelException(text);
  }
  for (module::ResponseSender* sender : lost) sender->FailWhenLost(channel::RequestFailure(name_, text));
  for (module::ResponseSender* sender : kept)
    sender->FailWhenLost(channel::RequestFailure(name_, LaterLoss(name_)));
}

abi::ExecuteAnswer Execution::Take(const py::object& result) {
  if (result.is_none() && wire_.Has(abi::Feature::kLateResponses)) {
    FailLost();
    return {};
  }
  if (!py::isinstance<py::list>(result)) {
    throw module::ModelException("Expected a list in the execute return, found type '" +
                                 module::TypeOf(result) + "'.");
  }
  const auto list = py::reinterpret_borrow<py::list>(result);
  if (list.size() != requests_.size()) {
    throw module::ModelException(
        "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
        "InferenceRequest(s) size is:" +
        std::to_string(requests_.size()) +
        ", and InferenceResponse(s) size is:" + std::to_string(list.size()) + "\n");
  }
  std::vector<std::optional<abi::Response>> answer;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    responses_.push_back(TakeOne(list[i], *requests_[i]));
    answer.push_back(responses_.back() ? std::optional(responses_.back()->ToValue()) : std::nullopt);
  }
  if (std::find(responses_.begin(), responses_.end(), nullptr) != responses_.end()) FailLost();
  return answer;
}

std::shared_ptr<module::InferenceResponse> Execution::TakeOne(py::handle item,
                                                              module::InferenceRequest& request) {
  if (item.is_none() && (request.IsRescheduled() || wire_.Has(abi::Feature::kLateResponses))) return nullptr;
  if (request.IsRescheduled()) {
    // The spelling is that of the official stub.
    throw module::ModelException(
        "Expected a None object in the execute function return list for reschduled request, found type '" +
        module::TypeOf(item) + "'.");
  }
  if (!py::isinstance<module::InferenceResponse>(item)) {
    throw module::ModelException(
        "Expected an 'InferenceResponse' object in the execute function return list, found type '" +
        module::TypeOf(item) + "'.");
  }
  auto response = item.cast<std::shared_ptr<module::InferenceResponse>>();
  request.sender()->CloseForReturn();
  module::RequireParameters(wire_, *response);
  response->Prune(request.value().requested_outputs);
  return response;
}

// A server that deletes the response factories of a failed batch deletes all of them; for a request whose
// final response has been sent, it would be the second time. In that case the stub deletes the others and
// reports that. With other servers each sender deletes its own when it is no longer used.
abi::ExecuteFailure Execution::Fail(const std::string& reason) {
  const std::string text = channel::RequestFailure(name_, reason);
  for (const auto& request : requests_) request->sender()->Close();
  module::Unlocked([&] {
    for (const auto& request : requests_) request->sender()->EndUses();
  });
  if (!wire_.FailureDeletesFactories()) return {text, false};
  const bool any_deleted = std::any_of(requests_.begin(), requests_.end(), [](const auto& request) {
    return request->sender()->IsFactoryDeleted();
  });
  module::Unlocked([&] {
    for (const auto& request : requests_) {
      if (any_deleted) request->sender()->DeleteFactory();
    }
  });
  for (const auto& request : requests_) request->sender()->MarkFactoryDeleted();
  return {text, any_deleted};
}

// With the answer, the server deletes the response factories of the requests that it contains responses for,
// and requests without a factory end.
void Execution::EndUses() {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const auto& sender = requests_[i]->sender();
    if (IsAnswered(i) || !sender->HasFactory()) sender->EndUses();
  }
}

void Execution::Finish() {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (IsAnswered(i)) requests_[i]->sender()->MarkFactoryDeleted();
  }
}

}  // namespace envpack::model
