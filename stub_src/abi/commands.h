// The commands of messages, and their numbers in each release.
#pragma once

#include <cstddef>
#include <cstdint>

#include "abi/release.h"

namespace envpack::abi {

enum class CommandKind : std::size_t {
  kExecuteRequest,
  kExecuteResponse,
  kInitializeRequest,
  kInitializeResponse,
  kCudaPoolInitializeRequest,
  kFinalizeRequest,
  kFinalizeResponse,
  kLoadGpuBuffers,
  kInferExecRequest,
  kInferStreamExecRequest,
  kInferExecResponse,
  kInferStreamExecResponse,
  kResponseSend,
  kResponseClose,
  kAutoCompleteRequest,
  kAutoCompleteResponse,
  kLogRequest,
  kStreamCleanup,
  kResponseFactoryCleanup,
  kMetricFamilyRequestNew,
  kMetricFamilyRequestDelete,
  kMetricRequestNew,
  kMetricRequestDelete,
  kMetricRequestValue,
  kMetricRequestIncrement,
  kMetricRequestSet,
  kMetricRequestObserve,
  kLoadModelRequest,
  kUnloadModelRequest,
  kModelReadinessRequest,
  kIsRequestCancelled,
  kCancelStream,
  kUserModelReadinessRequest,
  kUnknown,  // none of the above; must be last
};
inline constexpr std::size_t kCommandKinds = static_cast<std::size_t>(CommandKind::kUnknown);

// The first release that has a command.
constexpr Release Since(CommandKind kind) {
  switch (kind) {
    case CommandKind::kMetricFamilyRequestNew:
    case CommandKind::kMetricFamilyRequestDelete:
    case CommandKind::kMetricRequestNew:
    case CommandKind::kMetricRequestDelete:
    case CommandKind::kMetricRequestValue:
    case CommandKind::kMetricRequestIncrement:
    case CommandKind::kMetricRequestSet:
      return 2305;
    case CommandKind::kLoadModelRequest:
    case CommandKind::kUnloadModelRequest:
    case CommandKind::kModelReadinessRequest:
      return 2307;
    case CommandKind::kIsRequestCancelled:
      return 2310;
    case CommandKind::kCudaPoolInitializeRequest:
    case CommandKind::kInferStreamExecResponse:
      return 2311;
    case CommandKind::kResponseFactoryCleanup:
      return 2312;
    case CommandKind::kMetricRequestObserve:
      return 2408;
    case CommandKind::kCancelStream:
      return 2504;
    case CommandKind::kUserModelReadinessRequest:
      return 2603;
    default:
      return kOldest;
  }
}

// Each release numbers its commands in the order above, so a new command shifts those after it.
class CommandNumbers {
 public:
  static constexpr std::int32_t kNone = -1;

  constexpr explicit CommandNumbers(Release release) : numbers_() {
    std::int32_t next = 0;
    for (std::size_t kind = 0; kind < kCommandKinds; ++kind) {
      numbers_[kind] = Since(static_cast<CommandKind>(kind)) <= release ? next++ : kNone;
    }
  }

  // kNone if the release lacks the command.
  constexpr std::int32_t Of(CommandKind kind) const { return numbers_[static_cast<std::size_t>(kind)]; }

  constexpr CommandKind KindOf(std::int32_t number) const {
    for (std::size_t kind = 0; kind < kCommandKinds; ++kind) {
      if (numbers_[kind] == number && number != kNone) return static_cast<CommandKind>(kind);
    }
    return CommandKind::kUnknown;
  }

 private:
  std::int32_t numbers_[kCommandKinds];
};

}  // namespace envpack::abi
