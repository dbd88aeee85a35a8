#include "abi/readiness_question.h"

#include <chrono>
#include <variant>

#include "abi/plain_writer.h"
#include "shm/sync.h"

namespace envpack::abi {

namespace {

// A server that has waited for five seconds has gone, and takes no answer back.
constexpr std::chrono::seconds kPatience(5);

}  // namespace

SharedReadinessQuestion::SharedReadinessQuestion(shm::Region& region, const records::Message& message)
    : region_(region),
      record_(region.Load(message.args)),
      mutex_(region.Load(message.response_mutex)),
      condition_(region.Load(message.response_cond)) {}

void SharedReadinessQuestion::Answer(const ReadinessAnswer& answer) {
  PlainWriter writer(region_);
  auto* record = record_.As<records::UserModelReadiness>();
  auto* condition = condition_.As<pthread_cond_t>();
  shm::Lock lock(mutex_.As<pthread_mutex_t>());
  record->function_exists = true;
  if (const auto* failure = std::get_if<Failure>(&answer)) {
    record->has_error = record->is_error_set = true;
    record->error = writer.WriteString(failure->text);
  } else {
    record->is_ready = std::get<bool>(answer);
  }
  record->waiting_on_stub = true;
  shm::Notify(condition);
  const auto limit = std::chrono::system_clock::now() + kPatience;
  while (record->waiting_on_stub && lock.WaitUntil(condition, limit)) {
  }
}

}  // namespace envpack::abi
