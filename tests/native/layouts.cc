#include "layouts.h"

#include <cstdlib>

namespace envpack::test {

namespace {

#include "layouts_data.h"

// The value for a release, or null if it lacks the item.
template <typename Value>
const Value* In(const std::map<int, Value>& steps, int release) {
  const auto behind = steps.upper_bound(release);
  return behind == steps.begin() ? nullptr : &std::prev(behind)->second;
}

}  // namespace

const Layout& Layouts::Of(const std::string& record) const {
  const Layout* layout = In(kRecords.at(record), release_);
  if (layout == nullptr) throw Failed("this release lacks the record " + record);
  return *layout;
}

bool Layouts::HasCommand(const std::string& command) const {
  return In(kCommands.at(command), release_) != nullptr;
}

int Layouts::NumberOf(const std::string& command) const {
  const int* number = In(kCommands.at(command), release_);
  if (number == nullptr) throw Failed("this release lacks the command " + command);
  return *number;
}

int Layouts::Arguments() const { return *In(kArguments, release_); }

int ReleaseUnderTest() {
  const char* release = std::getenv("ENVPACK_TEST_RELEASE");
  return release == nullptr ? 2410 : std::atoi(release);
}

}  // namespace envpack::test
