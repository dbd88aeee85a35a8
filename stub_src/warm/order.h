// What a front and a template send to each other, over a socket that keeps the boundaries of messages.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <variant>

#include "base/descriptor.h"
#include "two_halves/body.h"

namespace envpack::warm {

// From a front that completes a new load of the model: accept no further fronts.
struct Retire {};

// From the template: the worker runs. `process` is its pidfd.
struct Started {
  std::int64_t pid = 0;
  Descriptor process;
};

// From the template: the worker has ended, with this status of waitpid().
struct Ended {
  std::int32_t status = 0;
};

// An assignment is a front's order to run a worker. Its files travel as descriptors.
using Message = std::variant<std::monostate, Assignment, Retire, Started, Ended>;

// Each returns false if the other side has closed the connection. Throw std::system_error for other errors.
bool Send(int socket, const Assignment& order);
bool Send(int socket, Retire);
bool Send(int socket, const Started& started);
bool Send(int socket, Ended ended);

// Waits for the next message. Returns std::monostate if the other side has closed the connection. Throws
// std::runtime_error for a message that is none of the above.
Message Receive(int socket);

// Whether the other side of a connection is a process of the same user in the same namespace of process ids.
// For the side that has connected, this is the process that made the listening socket.
bool IsTrusted(int socket);

// The process at the other side, as IsTrusted() sees it.
pid_t PeerOf(int socket);

}  // namespace envpack::warm
