#include "module/server_link.h"

#include <utility>

namespace envpack::module {

namespace {

ServerLink the_link;

}  // namespace

void SetServerLink(ServerLink link) { the_link = std::move(link); }

const ServerLink& TheServer() {
  if (the_link.wire == nullptr) {
    throw ModelException("The server is not available: this works from initialize() to finalize() only.");
  }
  return the_link;
}

void Require(const abi::Wire& wire, abi::Feature feature, const std::string& what) {
  if (wire.Has(feature)) return;
  throw ModelException(what + " Triton " + abi::NameOf(abi::Since(feature)) +
                       " or later; this server is Triton " + abi::NameOf(wire.ServerRelease()) + ".");
}

void RequireOwner(const forks::OwnerProcess& owner, const std::string& what) {
  if (owner.IsThisProcess()) return;
  throw ModelException(what + " available in the process that has created them only, not in a forked one.");
}

}  // namespace envpack::module
