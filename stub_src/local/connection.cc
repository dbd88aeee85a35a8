#include "local/connection.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <stdexcept>

#include "base/forks.h"
#include "base/output.h"

namespace envpack::local {

namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 36;  // of one message

struct Header {
  Kind kind;
  std::uint64_t id;
  std::uint64_t size;
};

// Drops the first bytes.
void Advance(std::array<iovec, 2>& parts, std::size_t count) {
  for (iovec& part : parts) {
    const std::size_t taken = count < part.iov_len ? count : part.iov_len;
    part.iov_base = static_cast<char*>(part.iov_base) + taken;
    part.iov_len -= taken;
    count -= taken;
  }
}

// Nothing that this process does has an effect any more. Envpack sees the end only.
[[noreturn]] void EndWithout() {
  Print("the model closes descriptors that are not its own, as that of the connection to envpack");
  _exit(1);
}

}  // namespace

void Connection::Send(Kind kind, std::uint64_t id, const Packer& content) {
  Header header{kind, id, content.size()};
  std::array<iovec, 2> parts{
      {{&header, sizeof(header)}, {const_cast<char*>(content.text().data()), content.size()}}};
  const std::lock_guard lock(sending_);
  while (parts[0].iov_len + parts[1].iov_len > 0) {
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t sent = sendmsg(socket_.number(), &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && IsTaken(errno) && forks::Depth() == 0) EndWithout();
    if (sent < 0) FailBySystem("cannot send to envpack");
    Advance(parts, static_cast<std::size_t>(sent));
  }
}

bool Connection::ReadAll(void* to, std::size_t size) {
  auto* at = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = recv(socket_.number(), at, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return false;
    if (got < 0) FailBySystem("cannot receive from envpack");
    at += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

std::optional<Message> Connection::Receive() {
  Header header{};
  if (!ReadAll(&header, sizeof(header))) return std::nullopt;
  if (header.size > kMostBytes) throw std::runtime_error("a message of envpack is too large");
  // Not initialised: the bytes of large tensors would be written twice.
  const std::shared_ptr<char> bytes(new char[header.size], std::default_delete<char[]>());
  if (!ReadAll(bytes.get(), header.size)) return std::nullopt;
  return Message{header.kind, header.id, bytes, {bytes.get(), header.size}};
}

}  // namespace envpack::local
