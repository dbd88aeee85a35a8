#include "abi/base_session.h"

namespace envpack::abi {

template class BaseSession<Session>;
template class BaseSession<Wire>;

}  // namespace envpack::abi
