// Determines the release of the server. The server does not pass it to the stub, and the protocol of another
// release crashes the server. So the stub evaluates every source of that information, and all must agree.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>

#include "abi/launch.h"
#include "abi/release.h"

namespace envpack::abi {

// The release is unknown or contradictory. The message says what to do, in one line.
struct ReleaseError : std::runtime_error {
  using runtime_error::runtime_error;
};

// The server's release according to one source.
struct Evidence {
  std::string source;
  std::string value;
  Release release;
  bool is_newer_than_known = false;  // `release` is the newest known one instead
  bool is_choice = false;            // chosen by the user, not reported by the server
};

// Evaluates, in this order: ENVPACK_TRITON_RELEASE; the file "<stub>.release" beside the stub, whose path is
// `stub`; NVIDIA_TRITON_SERVER_VERSION and TRITON_SERVER_VERSION; the file TRITON_VERSION in the server's
// folder; the server's library. `only` is the epoch that this stub was built for if there is just one,
// otherwise 0. Returns the release of the first source. Does not access the region. Throws ReleaseError if
// there is no source, if two disagree, or if the command line is that of another release.
Release FindServerRelease(const Launch& launch, const std::string& stub, Release only);

// The release that the server itself reports, by its library or, if that says nothing, the file
// TRITON_VERSION; none if neither does, or if the command line is that of another release. For a stub that
// has no release that it can run with, to tell the server.
std::optional<Release> ReportedRelease(const Launch& launch);

// The release whose server reports `version`, for example "2.51.0". Throws ReleaseError for a version that is
// older than all known ones; `source` is for the message.
Evidence FromServerVersion(const std::string& source, const std::string& version);

}  // namespace envpack::abi
