// Lets the server act at the moment in which the stub starts to wait for it, in the same thread.
#pragma once

#include <functional>

namespace envpack::fuzz {

// While it lives, `act` replaces every wait for a condition.
class ServerTurn {
 public:
  explicit ServerTurn(std::function<void()> act);
  ~ServerTurn();
  ServerTurn(const ServerTurn&) = delete;
  ServerTurn& operator=(const ServerTurn&) = delete;
};

}  // namespace envpack::fuzz
