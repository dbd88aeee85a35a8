// Finding out which release the server is of. It does not say so itself, and one that is spoken to in another
// release's way crashes, so every place that can tell is asked, and all must agree.
#pragma once

#include <stdexcept>
#include <string>

#include "abi/launch.h"
#include "abi/release.h"

namespace envpack::abi {

// The text says what is unclear and what to do, in one line.
class ReleaseUnclear : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What some place says about the server's release.
struct Statement {
  std::string place;
  std::string said;
  Release release;
  bool is_newer_than_known = false;  // then `release` is the newest known, for want of a better one
  bool is_choice = false;            // somebody's decision, not the server's own word
};

// Asks, in this order: ENVPACK_TRITON_RELEASE; the file "<stub>.release" beside the stub, whose path is
// `stub`; NVIDIA_TRITON_SERVER_VERSION and TRITON_SERVER_VERSION; the file TRITON_VERSION of the server's
// folder; the server's own library. `only` is the release that this stub was built for if there is just one,
// 0 otherwise. Returns the release that was named first. Nothing of the region is looked at. Throws
// ReleaseUnclear if nobody knows, two disagree, or the command line is not that release's.
Release FindServerRelease(const Launch& launch, const std::string& stub, Release only);

// The release whose server calls itself `version`, for example "2.51.0". Throws ReleaseUnclear for one that
// is older than all known; `place` is for that message.
Statement FromServerVersion(const std::string& place, const std::string& version);

}  // namespace envpack::abi
