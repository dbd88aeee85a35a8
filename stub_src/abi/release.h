// The releases of Triton that the stub supports, which of them share a protocol, and the features of each.
#pragma once

#include <cstddef>
#include <iterator>
#include <string>

namespace envpack::abi {

// A release as a number that sorts: 2410 is 24.10.
using Release = int;

// An epoch is a run of releases between which a stub sees no difference. Each is named after its first
// release.
inline constexpr Release kEpochs[] = {2304, 2305, 2306, 2307, 2308, 2309, 2310, 2311, 2312,
                                      2403, 2404, 2406, 2408, 2410, 2502, 2504, 2603};

// The epochs that have a wire of their own: those that a line of traits.h names, and the first. Each other
// epoch differs from the one before it only in command numbers and features, which are looked up at run time.
inline constexpr Release kWireEpochs[] = {2304, 2305, 2306, 2308, 2309, 2311, 2312,
                                          2403, 2404, 2406, 2408, 2410, 2502, 2504};

// A release, and the version that its server reports.
struct KnownRelease {
  Release release;
  const char* server;
};
inline constexpr KnownRelease kReleases[] = {
    {2304, "2.33.0"}, {2305, "2.34.0"}, {2306, "2.35.0"}, {2307, "2.36.0"}, {2308, "2.37.0"},
    {2309, "2.38.0"}, {2310, "2.39.0"}, {2311, "2.40.0"}, {2312, "2.41.0"}, {2401, "2.42.0"},
    {2402, "2.43.0"}, {2403, "2.44.0"}, {2404, "2.45.0"}, {2405, "2.46.0"}, {2406, "2.47.0"},
    {2407, "2.48.0"}, {2408, "2.49.0"}, {2409, "2.50.0"}, {2410, "2.51.0"}, {2411, "2.52.0"},
    {2412, "2.53.0"}, {2501, "2.54.0"}, {2502, "2.55.0"}, {2503, "2.56.0"}, {2504, "2.57.0"},
    {2505, "2.58.0"}, {2506, "2.59.0"}, {2507, "2.59.1"}, {2508, "2.60.0"}, {2509, "2.61.0"},
    {2510, "2.62.0"}, {2511, "2.63.0"}, {2512, "2.64.0"}, {2601, "2.65.0"}, {2602, "2.66.0"},
    {2603, "2.67.0"}, {2604, "2.68.0"}, {2605, "2.69.0"}, {2606, "2.70.0"}, {2607, "2.71.0"},
};
inline constexpr Release kOldest = kReleases[0].release;
inline constexpr Release kNewest = kReleases[std::size(kReleases) - 1].release;

// Features of the server that models may use. The value is the first release that has the feature.
enum class Feature : Release {
  kMetrics = 2305,
  kModelControl = 2307,
  kCancelQueries = 2310,
  kRescheduling = 2311,
  kRequestParameters = 2311,  // in requests that the model makes
  kTextCorrelationIds = 2404,
  kLateResponses = 2406,  // through a response sender, in the default mode
  kHistograms = 2408,
  kResponseParameters = 2502,
  kCancelledStreams = 2504,
  kReadiness = 2603,
};

constexpr Release Since(Feature feature) { return static_cast<Release>(feature); }

// The last of `epochs` that does not begin after `release`.
template <std::size_t kCount>
constexpr Release LastUpTo(Release release, const Release (&epochs)[kCount]) {
  Release found = epochs[0];
  for (const Release epoch : epochs) {
    if (epoch <= release) found = epoch;
  }
  return found;
}

// The epoch that a release belongs to. A release newer than all known ones belongs to the last epoch.
constexpr Release EpochOf(Release release) { return LastUpTo(release, kEpochs); }

// The epoch whose wire a release uses.
constexpr Release WireEpochOf(Release release) { return LastUpTo(release, kWireEpochs); }

// "24.10"
inline std::string NameOf(Release release) {
  const std::string digits = std::to_string(release);
  return digits.substr(0, 2) + "." + digits.substr(2);
}

}  // namespace envpack::abi
