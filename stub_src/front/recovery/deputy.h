// The session of the front, which also sends messages in place of a worker that has died.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "abi/base_session.h"
#include "abi/journal.h"
#include "abi/launch.h"
#include "abi/records.h"
#include "abi/release.h"
#include "abi/values.h"
#include "abi/wire.h"
#include "shm/queue.h"
#include "shm/region.h"

namespace envpack::front {

// All functions may block until the server reacts; after a minute they throw shm::Abandoned. `meanwhile` is
// called again and again while one waits, since the thread of the server that must react may be held up by
// something else that the worker has left.
class Deputy final : public abi::FrontSession {
 public:
  using Meanwhile = std::function<void()>;

  // Throws std::invalid_argument if this stub was built without the release.
  Deputy(const abi::Launch& launch, abi::Release release);

  abi::Release release() const { return release_; }
  bool UsesEnvironment() const { return control().uses_env; }
  abi::CommandKind KindOf(const shm::Block& message) const;

  // Whether the last command that a worker has taken is a batch for whose answer the server waits.
  bool HasOpenBatch();

  // By what the server identifies the requests of a command to execute, which is `message`.
  std::vector<abi::Origin> OriginsOf(const shm::Block& message);

  // Fails the batch that the worker was processing, or ends it if all its requests have been answered. The
  // server deletes the response factories of a batch that fails, unless it is told to keep them.
  void FailBatch(const std::string& text, const Meanwhile& meanwhile, bool keep_factories = false);
  void EndBatch(const Meanwhile& meanwhile);

  // Fails the batch that the front itself has received.
  void RefuseBatch(const std::string& text, const Meanwhile& meanwhile);

  // Releases the server, which has sent a response of a stream, and waits until it goes on, unless this
  // process holds more than `own` references to the message. The server limits its wait for other messages.
  void Acknowledge(const shm::Block& message, std::uint32_t own);
  // The same for all messages that have come by now.
  void DismissServerMessages();

  // Answers the command to finalize, a message of the server.
  void AnswerFinalizeOf(const shm::Block& message);

  // Takes the server's acknowledgement of an answer that the worker has sent.
  void TakeAcknowledgement(const Meanwhile& meanwhile);

  // Ends a request with an error.
  void SendError(const abi::OpenRequest& request, const std::string& text);

  void DeleteFactory(std::int64_t response_factory);

  shm::Region& region() { return region_; }
  shm::Queue& commands() { return commands_; }
  shm::Queue& answers() { return answers_; }
  shm::Queue& to_server() { return to_server_; }
  shm::Queue& server_messages() { return server_messages_; }
  shm::Queue& released() { return released_; }

 private:
  void AnswerBatch(abi::Writer& writer, const abi::records::ResponseBatch24_10& batch,
                   const Meanwhile& meanwhile);
  static void Await(const abi::records::Flag& flag, shm::Lock& lock, pthread_cond_t* condition);
  abi::Handle WriteErrorResponse(abi::Writer& writer, const std::string& text) const;
  template <typename Record>
  void SendTurn(abi::Writer& writer, const abi::OpenRequest& request, abi::Handle response);

  shm::Queue to_server_;
  shm::Queue server_messages_;
  shm::Queue released_;
};

}  // namespace envpack::front
