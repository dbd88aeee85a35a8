// The differences between the protocols of the releases, one line each. records.h chooses the layouts of
// records by these lines. The numbers of commands are in commands.h, since they are looked up at run time.
#pragma once

#include "abi/release.h"

namespace envpack::abi {

// The first release whose server waits for a startup message. Earlier servers would read it as an answer.
inline constexpr Release kFirstWithStartupMessage = 2305;

// Each epoch that a line names must be one of kWireEpochs.
template <Release kEpoch>
struct Traits {
  // Requests.
  static constexpr bool kHasTracePointer = kEpoch >= 2308;  // in the request itself, until 24.03
  static constexpr bool kHasReleaseFlags = kEpoch >= 2311;
  static constexpr bool kHasLongTimeout = kEpoch >= 2312;  // 64 bits
  static constexpr bool kHasTraceRecord = kEpoch >= 2403;
  static constexpr bool kHasStringRecords = kEpoch >= 2404;  // correlation ids may be text

  // Tensors.
  static constexpr bool kHasPoolOffsets = kEpoch >= 2311;
  static constexpr bool kHasBufferRecord = kEpoch >= 2306;  // destinations of GPU tensors; a bare list before

  // Answers.
  static constexpr bool kErrorsHaveCodes = kEpoch >= 2309;
  static constexpr bool kAnswersBySender =
      kEpoch >= 2406 && kEpoch < 2410;  // also for what execute() returns
  static constexpr bool kAnswersInOneBlock = kEpoch >= 2410;
  static constexpr bool kHasResponseParameters = kEpoch >= 2502;
  static constexpr bool kErrorsHaveStreamId = kEpoch >= 2504;  // in responses to BLS requests
  // The stub deletes each request's response factory. Before and after, the server does.
  static constexpr bool kStubDeletesFactories = kEpoch >= 2312 && kEpoch < 2410;

  // Requests of the stub.
  static constexpr bool kHasRequestQueue = kEpoch >= 2410;  // before, they travel between the answers
  static constexpr bool kStreamMessagesHaveCommands = kEpoch >= 2311;
  static constexpr bool kStreamsAreAcknowledgedTwice = kEpoch < 2305;
  static constexpr bool kMetricsHaveBuckets = kEpoch >= 2408;
};

}  // namespace envpack::abi
