// Triton's releases, as far as a stub cares: which there are, and which of them speak alike.
#pragma once

#include <cstddef>
#include <string>

namespace envpack::abi {

// A release as a number that sorts: 2410 is 24.10.
using Release = int;

// Each begins with the release named here: a run of releases between which a stub sees no difference.
inline constexpr Release kEpochs[] = {2304, 2305, 2306, 2307, 2308, 2309, 2310, 2311, 2312,
                                      2403, 2404, 2406, 2408, 2410, 2502, 2504, 2603};

// A release, and the version that its server calls itself.
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

// The epoch that a release belongs to; one that is newer than all known belongs to the last.
constexpr Release EpochOf(Release release) {
  Release found = kEpochs[0];
  for (const Release epoch : kEpochs) {
    if (epoch <= release) found = epoch;
  }
  return found;
}

// "24.10"
std::string NameOf(Release release);

}  // namespace envpack::abi
