// Everything in which the releases' protocols differ, one line each: since which release it holds. Layouts of
// records are in records.h and numbers of commands in commands.h, both chosen by these lines.
#pragma once

#include "abi/release.h"

namespace envpack::abi {

// The first release whose server waits for a sign of life; those before would take it for an answer.
inline constexpr Release kFirstThatWaitsForASign = 2305;

template <Release kEpoch>
struct Traits {
  // Requests.
  static constexpr bool kHasTracePointer = kEpoch >= 2308;  // in the request itself, until 24.03
  static constexpr bool kHasReleaseFlags = kEpoch >= 2311;
  static constexpr bool kHasLongTimeout = kEpoch >= 2312;  // 64 bits
  static constexpr bool kHasTraceRecord = kEpoch >= 2403;
  static constexpr bool kStringsApart = kEpoch >= 2404;  // and the correlation id may be a text

  // Tensors.
  static constexpr bool kHasPoolOffsets = kEpoch >= 2311;
  static constexpr bool kHasBufferRecord = kEpoch >= 2306;  // where GPU tensors go; a bare list before

  // Answers.
  static constexpr bool kErrorsHaveCodes = kEpoch >= 2309;
  static constexpr bool kAnswersBySender = kEpoch >= 2406 && kEpoch < 2410;  // also what execute() returns
  static constexpr bool kAnswersInOneBlock = kEpoch >= 2410;
  static constexpr bool kHasResponseParameters = kEpoch >= 2502;
  static constexpr bool kErrorsNameTheirStream = kEpoch >= 2504;  // of responses to the model's own requests
  // Who deletes a request's response factory: the server, then the stub, then the server again.
  static constexpr bool kStubDeletesFactories = kEpoch >= 2312 && kEpoch < 2410;

  // The stub's own requests.
  static constexpr bool kAsksOnItsOwnQueue = kEpoch >= 2410;  // responses too; before, between the answers
  static constexpr bool kStreamsCarryCommands = kEpoch >= 2311;
  static constexpr bool kStreamsAreAcknowledgedTwice = kEpoch < 2305;
  static constexpr bool kMetricsHaveBuckets = kEpoch >= 2408;
};

}  // namespace envpack::abi
