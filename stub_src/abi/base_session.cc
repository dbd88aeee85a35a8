#include "abi/base_session.h"

namespace envpack::abi {

template class BaseSession<Session>;
template class BaseSession<Wire>;

std::unique_ptr<Session> OpenSession(const Launch& launch, Release release) {
  return std::make_unique<BaseSession<Session>>(launch, release, MakeJournal());
}

}  // namespace envpack::abi
