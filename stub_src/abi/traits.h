// The differences between the protocols of the releases, one line each. The layouts of records are in
// layouts.txt. The front asks at run time, since it answers for workers of every epoch.
#pragma once

#include "abi/release.h"

namespace envpack::abi {

// The first release whose server waits for a startup message. Earlier servers would read it as an answer.
inline constexpr Release kFirstWithStartupMessage = 2305;

// Requests.
constexpr bool HasTracePointer(Release release) { return release >= 2308; }  // in the request, until 24.03
constexpr bool HasReleaseFlags(Release release) { return release >= 2311; }
constexpr bool HasTraceRecord(Release release) { return release >= 2403; }
constexpr bool HasStringRecords(Release release) { return release >= 2404; }  // correlation ids may be text

// Tensors.
constexpr bool HasPoolOffsets(Release release) { return release >= 2311; }
constexpr bool HasBufferRecord(Release release) { return release >= 2306; }  // a bare list before

// Answers.
constexpr bool ErrorsHaveCodes(Release release) { return release >= 2309; }
// Also for what execute() returns.
constexpr bool AnswersBySender(Release release) { return release >= 2406 && release < 2410; }
constexpr bool AnswersInOneBlock(Release release) { return release >= 2410; }
constexpr bool HasResponseParameters(Release release) { return release >= 2502; }
constexpr bool ErrorsHaveStreamId(Release release) { return release >= 2504; }  // of BLS
// The stub deletes each request's response factory. Before and after, the server does.
constexpr bool StubDeletesFactories(Release release) { return release >= 2312 && release < 2410; }

// Requests of the stub.
constexpr bool HasRequestQueue(Release release) { return release >= 2410; }  // before, between the answers
constexpr bool StreamMessagesHaveCommands(Release release) { return release >= 2311; }
constexpr bool StreamsAreAcknowledgedTwice(Release release) { return release < 2305; }
constexpr bool MetricsHaveBuckets(Release release) { return release >= 2408; }

}  // namespace envpack::abi
