#include "warm/order.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/packing.h"

namespace envpack::warm {

namespace {

// The first byte of a message.
enum class Kind : char { kOrder = 'O', kRetire = 'R', kStarted = 'S', kEnded = 'E' };

constexpr std::size_t kMostDescriptors = 4;
constexpr std::size_t kMostText = std::size_t{1}
                                  << 30;  // of an order; the server's limit for a configuration

struct Packet {
  Kind kind;
  std::int64_t value;
};

// An order is text of any size, so it travels in a memory file. It begins with whether the command is to
// initialize: with the arguments for that, else with a configuration to complete.
template <typename Row, typename Order>
void OrderText(Row& row, Order& order) {
  auto& launch = order.launch;
  row(launch.model_file, launch.region, launch.region_growth, launch.server_pid, launch.backend_directory,
      launch.control_handle, launch.name, launch.runtime_directory, launch.has_last_argument, order.release,
      order.may_run_out_of_time, order.initialize_in_template, order.restarts, order.last_death);
  if (auto* completion = std::get_if<abi::AutoCompleteCommand>(&order.command)) row(completion->model_config);
  if (auto* start = std::get_if<abi::InitializeCommand>(&order.command)) row(start->arguments);
}

bool SendPacket(int socket, const Packet& packet, const std::vector<int>& descriptors) {
  iovec part{const_cast<Packet*>(&packet), sizeof(packet)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> space{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    const std::size_t size = descriptors.size() * sizeof(int);
    header.msg_control = space.data();
    header.msg_controllen = CMSG_SPACE(size);
    cmsghdr* control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(control), descriptors.data(), size);
  }
  for (;;) {
    if (sendmsg(socket, &header, MSG_NOSIGNAL) >= 0) return true;
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) return false;
    if (errno != EINTR) FailBySystem("cannot send to a template");
  }
}

struct Received {
  Packet packet;
  std::vector<Descriptor> descriptors;
};

std::optional<Received> ReceivePacket(int socket) {
  Received received{};
  iovec part{&received.packet, sizeof(received.packet)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> space{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = space.data();
  header.msg_controllen = space.size();
  ssize_t size;
  do size = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  while (size < 0 && errno == EINTR);
  if (size == 0 || (size < 0 && errno == ECONNRESET)) return std::nullopt;
  if (size < 0) FailBySystem("cannot receive from a template");
  const bool is_cut = (header.msg_flags & MSG_CTRUNC) != 0;
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = 0; at + CMSG_LEN(sizeof(int)) <= control->cmsg_len; at += sizeof(int)) {
      int number;
      std::memcpy(&number, CMSG_DATA(control) + at, sizeof(number));
      received.descriptors.emplace_back(number);
    }
  }
  if (is_cut) FailBySystem("there is no room for the descriptors of a message", EMFILE);
  if (size != sizeof(Packet)) throw std::runtime_error("a message for a template has the wrong size");
  return received;
}

Assignment UnpackOrder(Received received) {
  if (received.descriptors.size() != kMostDescriptors) {
    throw std::runtime_error("an order lacks descriptors");
  }
  const int file = received.descriptors[0].number();
  const std::string text = ReadAll(file, kMostText, "cannot read an order");
  Unpacker unpacker(text);
  Assignment order;
  if (unpacker.Next<bool>()) order.command = abi::InitializeCommand();
  OrderText(unpacker, order);
  order.journal = std::make_shared<abi::JournalFile>(std::move(received.descriptors[1]));
  order.report = std::make_shared<channel::Report>(std::move(received.descriptors[2]));
  order.crash_output = std::make_shared<const Descriptor>(std::move(received.descriptors[3]));
  return order;
}

ucred CredentialsOf(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    FailBySystem("cannot identify a process");
  return peer;
}

}  // namespace

bool Send(int socket, const Assignment& order) {
  Packer packer = Packed(std::holds_alternative<abi::InitializeCommand>(order.command));
  OrderText(packer, order);
  const Descriptor text = MakeMemoryFile("order", "cannot create a memory file for a template");
  WriteAt(text.number(), packer.text(), 0, "cannot write to a memory file for a template");
  return SendPacket(
      socket, {Kind::kOrder, 0},
      {text.number(), order.journal->descriptor(), order.report->descriptor(), order.crash_output->number()});
}

bool Send(int socket, Retire) { return SendPacket(socket, {Kind::kRetire, 0}, {}); }

bool Send(int socket, const Started& started) {
  return SendPacket(socket, {Kind::kStarted, started.pid}, {started.process.number()});
}

bool Send(int socket, Ended ended) { return SendPacket(socket, {Kind::kEnded, ended.status}, {}); }

Message Receive(int socket) {
  std::optional<Received> received = ReceivePacket(socket);
  if (!received) return {};
  switch (received->packet.kind) {
    case Kind::kOrder:
      return UnpackOrder(*std::move(received));
    case Kind::kRetire:
      return Retire{};
    case Kind::kStarted:
      if (received->descriptors.size() != 1) break;
      return Started{received->packet.value, std::move(received->descriptors[0])};
    case Kind::kEnded:
      return Ended{static_cast<std::int32_t>(received->packet.value)};
  }
  throw std::runtime_error("a message for a template is of no known kind");
}

// The kernel reports process id 0 for a process that this one cannot see.
bool IsTrusted(int socket) {
  const ucred peer = CredentialsOf(socket);
  return peer.uid == geteuid() && peer.pid > 0;
}

pid_t PeerOf(int socket) { return CredentialsOf(socket).pid; }

}  // namespace envpack::warm
