#include "abi/release.h"

namespace envpack::abi {

std::string NameOf(Release release) {
  const std::string digits = std::to_string(release);
  return digits.substr(0, 2) + "." + digits.substr(2);
}

}  // namespace envpack::abi
