// The stub executable. It does not depend on libpython, so the server's test run, errors in the command line
// and the report of a missing libpython work wherever the file lies.
#include <signal.h>
#include <sys/prctl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>
#include <optional>

#include "abi/launch.h"
#include "abi/release.h"
#include "abi/server_release.h"
#include "base/output.h"
#include "base/signals.h"
#include "channel/refusal.h"
#include "front/front.h"
#include "front/template.h"
#include "two_halves/body.h"
#include "two_halves/build_info.h"

namespace envpack {

namespace {

// Ctrl-C in the server's terminal, or the stop of a container, signals the whole process group; the server
// ends the stub with a command. Not SIG_IGN, which programs started by the model would inherit.
void IgnoreSignals() {
  for (const int signal : {SIGINT, SIGTERM}) SetHandler(signal, [](int) {});
  SetHandler(SIGXFSZ, SIG_IGN);  // as Python does: a region that must not grow is an error
}

int PrintVersion() {
  std::printf(
      "triton_python_backend_stub of envpack %s for Python %s (%s), Triton %s, NumPy 1 and 2; built with "
      "%s\n",
      build::kVersion, build::kPythonMinor, build::kLibpython, build::kReleases, build::kCompiler);
  return 0;
}

int Run(int argc, const char* const* argv) {
  const abi::Launch launch = abi::ParseLaunch(argc, argv);
  const abi::Release only = std::size(abi::kBuiltEpochs) == 1 ? abi::kBuiltEpochs[0] : 0;
  abi::Release release = 0;
  try {
    release = abi::FindServerRelease(launch, argv[0], only);
  } catch (const abi::ReleaseError& error) {
    const std::optional<abi::Release> server = abi::ReportedRelease(launch);
    if (!server) throw;
    return channel::RefuseLaunch(launch, *server, error.what());
  }
  return front::Run(launch, release);
}

// See front::kTemplateOption.
int RunAsTemplate(int argc, const char* const* argv) {
  prctl(PR_SET_NAME, program_invocation_short_name);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // while it starts
  const char* const* added = argv + argc - front::kTemplateArguments;
  const abi::Launch launch = abi::ParseLaunch(argc - front::kTemplateArguments, argv);
  const TemplateTask task{launch, static_cast<abi::Release>(std::atoi(added[2])),
                          std::strcmp(added[3], "1") == 0, std::atoi(added[1])};
  return RunBody(&task);
}

// The only argument of a model that runs without a server: the descriptor of a socket.
constexpr char kLocalOption[] = "--local=";

bool IsLocal(const char* argument) {
  return std::strncmp(argument, kLocalOption, std::strlen(kLocalOption)) == 0;
}

}  // namespace

}  // namespace envpack

int main(int argc, char** argv) {
  using namespace envpack;
  if (argc == 1) return abi::kDryRunStatus;
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) return PrintVersion();
  IgnoreSignals();
  try {
    if (argc == 2 && IsLocal(argv[1])) {
      const LocalTask task{std::atoi(argv[1] + std::strlen(kLocalOption))};
      return RunBody(&task);
    }
    if (argc > front::kTemplateArguments &&
        std::strcmp(argv[argc - front::kTemplateArguments], front::kTemplateOption) == 0) {
      return RunAsTemplate(argc, argv);
    }
    return Run(argc, argv);
  } catch (const std::exception& error) {
    Print(error.what());
    return 1;
  }
}
