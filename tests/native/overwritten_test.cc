// Models that overwrite what they share with the stub, and die: their requests fail with that cause, and the
// next process serves.
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "abi/journal.h"
#include "check.h"
#include "running_stub.h"

using namespace envpack::test;

namespace {

// overwrite() writes to the mapping whose name contains `name`.
constexpr char kOverwrite[] = R"(
def mapping(name):
    for line in open("/proc/self/maps"):
        if name in line and "rw-s" in line:
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            return begin, end - begin

def overwrite(name, at=0, value=None, size=8):
    begin, whole = mapping(name)
    if value is None:
        ctypes.memset(begin, 0xFF, whole)
    else:
        ctypes.memmove(begin + at, value.to_bytes(size, "little", signed=value < 0), size)
)";

struct Overwritten : RunningStub {
  Overwritten() : RunningStub(ScriptModel(kOverwrite)) {
    CHECK(!Initialize());
    SkipReport();
  }

  ExecuteAnswer Run(const std::string& code) {
    const auto answer = Execute({RequestOf(code, kTwoFloats)});
    peer.Drop();
    return answer;
  }

  // It reports itself in the log and by a metric.
  void CheckThatTheNextOneServes() {
    int lines = 2, metrics = 3;
    while (lines > 0 || metrics > 0) {
      if (peer.NextRequestIs("LogRequest")) {
        peer.TakeLog();
        --lines;
      } else {
        const char* const commands[] = {"MetricRequestIncrement", "MetricRequestNew",
                                        "MetricFamilyRequestNew"};
        peer.TakeMetrics(commands[--metrics]);
      }
    }
    for (int round = 0; round < 3; ++round) {
      const auto answer = Run("answer = 6 * 7");
      CHECK_EQ(answer.error.value_or(""), "");
      CHECK_EQ(answer.responses.at(0).outputs.at(0).bytes, "42");
    }
    CHECK(peer.region.IsConsistent());
    CHECK(peer.TakeFinalize(peer.SendFinalize()));
    CHECK_EQ(stub.Wait(), 0);
  }
};

}  // namespace

CASE(overwritten_notes_are_told_and_the_next_process_serves) {
  Overwritten running;
  const std::string error = running.Run("overwrite('memfd:journal')\nos._exit(3)").error.value_or("");
  CHECK_HAS(error, "exited with status 3");
  CHECK_HAS(error, "has damaged the memory that it shares with the stub");
  running.CheckThatTheNextOneServes();
}

// Each of these words ended the stub, or was believed.
CASE(an_overwritten_word_of_the_notes_is_told_or_does_no_harm) {
  using envpack::abi::Journal;
  const auto at = [](std::size_t offset) { return std::to_string(offset); };
  const std::size_t ledger = offsetof(Journal, ledger), notes = ledger + sizeof(envpack::shm::UndoLog);
  const std::size_t request = offsetof(Journal, requests) + offsetof(envpack::abi::OpenRequest, request);
  for (const auto& [place, size] :
       std::vector<std::pair<std::string, int>>{{at(offsetof(Journal, stage)), 4},
                                                {at(offsetof(Journal, command)), 8},
                                                {at(offsetof(Journal, has_listed)), 4},
                                                {at(offsetof(Journal, used_requests)), 4},
                                                {at(offsetof(Journal, exchanges)), 4},
                                                {at(offsetof(Journal, server_message)), 8},
                                                {at(request), 8},
                                                {at(ledger), 4},      // how much of the undo log is used
                                                {at(ledger + 8), 8},  // a distance in it
                                                {at(notes), 4},       // how much of the ledger is used
                                                {at(notes + 16), 8}}) {
    Overwritten running;
    const std::string error =
        running
            .Run("overwrite('memfd:journal', " + place + ", -1, " + std::to_string(size) + ")\nos._exit(3)")
            .error.value_or("");
    CHECK_HAS(error, "exited with status 3");
    running.CheckThatTheNextOneServes();
  }
}

CASE(an_overwritten_region_ends_the_stub_and_is_told) {
  for (const char* code : {"overwrite('/dev/shm')", "overwrite('/dev/shm', 8, 12345)"}) {
    Overwritten running;
    running.peer.SendExecute({RequestOf(std::string(code) + "\nos._exit(3)", kTwoFloats)});
    CHECK_EQ(running.stub.Wait(), 3);
    CHECK_HAS(running.stub.Output(), "is damaged");
    CHECK_HAS(running.stub.Output(), "is not restarted");
  }
}

// The model can reach the other files, too, by their descriptors.
CASE(enlarged_and_shortened_files_are_no_load_on_the_stub) {
  for (const char* size : {"1 << 46", "0"}) {
    Overwritten running;
    const std::string error = running
                                  .Run(
                                      "for number in os.listdir('/proc/self/fd'):\n"
                                      "    try:\n"
                                      "        if 'memfd' in os.readlink(f'/proc/self/fd/{number}'):\n"
                                      "            os.ftruncate(int(number), " +
                                      std::string(size) + ")\n    except OSError:\n        pass\nos._exit(3)")
                                  .error.value_or("");
    CHECK_HAS(error, "exited with status 3");
    running.CheckThatTheNextOneServes();
  }
}
