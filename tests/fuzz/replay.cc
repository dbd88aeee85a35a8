// Replays inputs without a fuzzer:
//   fuzz_replay            reads each message undamaged, which must succeed
//   fuzz_replay FILE…      also reads the messages damaged according to the files, which are read or rejected
#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

#include "damage.h"
#include "scenarios.h"

using namespace envpack::fuzz;

namespace {

bool ReadsUndamaged() {
  bool good = true;
  for (std::size_t number = 0; number < kScenarios.size(); ++number) {
    const auto input = static_cast<std::uint8_t>(number);
    if (ReadDamaged(&input, 1) == Outcome::kRead) continue;
    std::fprintf(stderr, "the undamaged message '%s' is rejected\n", kScenarios[number].name);
    good = false;
  }
  return good;
}

void Replay(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  const Outcome outcome = ReadDamaged(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  std::printf("%s %s\n", outcome == Outcome::kRead ? "read" : "rejected", path);
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) Replay(argv[i]);
  return ReadsUndamaged() ? 0 : 1;
}
