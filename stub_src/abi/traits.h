// The differences between the protocols of the releases, one line each. records.h chooses the layouts of
// records by these lines. The numbers of commands are in commands.h, since they are looked up at run time.
#pragma once

#include "abi/release.h"

namespace envpack::abi {

// The first release whose server waits for a startup message. Earlier servers would read it as an answer.
inline constexpr Release kFirstWithStartupMessage = 2305;

// What the front needs at run time, since it answers for workers of every epoch.
constexpr bool AnswersInOneBlock(Release release) { return release >= 2410; }
constexpr bool StubDeletesFactories(Release release) { return release >= 2312 && release < 2410; }
constexpr bool HasRequestQueue(Release release) { return release >= 2410; }
constexpr bool HasBufferRecord(Release release) { return release >= 2306; }
constexpr bool HasStringRecords(Release release) { return release >= 2404; }
constexpr bool ErrorsHaveCodes(Release release) { return release >= 2309; }
constexpr bool HasResponseParameters(Release release) { return release >= 2502; }
constexpr bool ErrorsHaveStreamId(Release release) { return release >= 2504; }
constexpr bool StreamMessagesHaveCommands(Release release) { return release >= 2311; }
constexpr bool StreamsAreAcknowledgedTwice(Release release) { return release < 2305; }

// Each epoch that a line names must be one of kWireEpochs.
template <Release kEpoch>
struct Traits {
  // Requests.
  static constexpr bool kHasTracePointer = kEpoch >= 2308;  // in the request itself, until 24.03
  static constexpr bool kHasReleaseFlags = kEpoch >= 2311;
  static constexpr bool kHasLongTimeout = kEpoch >= 2312;  // 64 bits
  static constexpr bool kHasTraceRecord = kEpoch >= 2403;
  static constexpr bool kHasStringRecords = HasStringRecords(kEpoch);  // correlation ids may be text

  // Tensors.
  static constexpr bool kHasPoolOffsets = kEpoch >= 2311;
  static constexpr bool kHasBufferRecord =
      HasBufferRecord(kEpoch);  // destinations of GPU tensors; a bare list before

  // Answers.
  static constexpr bool kErrorsHaveCodes = ErrorsHaveCodes(kEpoch);
  static constexpr bool kAnswersBySender =
      kEpoch >= 2406 && kEpoch < 2410;  // also for what execute() returns
  static constexpr bool kAnswersInOneBlock = AnswersInOneBlock(kEpoch);
  static constexpr bool kHasResponseParameters = HasResponseParameters(kEpoch);
  static constexpr bool kErrorsHaveStreamId = ErrorsHaveStreamId(kEpoch);  // in responses to BLS requests
  // The stub deletes each request's response factory. Before and after, the server does.
  static constexpr bool kStubDeletesFactories = StubDeletesFactories(kEpoch);

  // Requests of the stub.
  static constexpr bool kHasRequestQueue =
      HasRequestQueue(kEpoch);  // before, they travel between the answers
  static constexpr bool kStreamMessagesHaveCommands = StreamMessagesHaveCommands(kEpoch);
  static constexpr bool kStreamsAreAcknowledgedTwice = StreamsAreAcknowledgedTwice(kEpoch);
  static constexpr bool kMetricsHaveBuckets = kEpoch >= 2408;
};

}  // namespace envpack::abi
