// What models may use of the server, and since when it is there.
#pragma once

#include "abi/release.h"

namespace envpack::abi {

// The value is the first release that has it.
enum class Feature : Release {
  kMetrics = 2305,
  kModelControl = 2307,
  kCancelQueries = 2310,
  kRescheduling = 2311,
  kRequestParameters = 2311,  // in requests that the model makes
  kTextCorrelationIds = 2404,
  kAnswersLater = 2406,  // by a response sender, in the default mode
  kHistograms = 2408,
  kResponseParameters = 2502,
  kCancelledStreams = 2504,
  kReadiness = 2603,
};

constexpr Release Since(Feature feature) { return static_cast<Release>(feature); }

}  // namespace envpack::abi
