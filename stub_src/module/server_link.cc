#include "module/server_link.h"

namespace envpack::module {

namespace {

ServerLink the_link;

}  // namespace

void SetServerLink(ServerLink link) { the_link = std::move(link); }

const ServerLink& TheServer() {
  if (the_link.wire == nullptr) {
    throw ModelException("The server cannot be asked yet: this works from initialize() to finalize() only.");
  }
  return the_link;
}

}  // namespace envpack::module
