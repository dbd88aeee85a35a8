// A ReadinessQuestion as it lies in the region, from 26.03 on.
#pragma once

#include "abi/records.h"
#include "abi/wire.h"
#include "shm/region.h"

namespace envpack::abi {

class SharedReadinessQuestion final : public ReadinessQuestion {
 public:
  // `region` must outlive the question.
  SharedReadinessQuestion(shm::Region& region, const records::Message& message);
  void Answer(const ReadinessAnswer& answer) override;

 private:
  shm::Region& region_;
  shm::Block record_;
  shm::Block mutex_;
  shm::Block condition_;
};

}  // namespace envpack::abi
