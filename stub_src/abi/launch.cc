#include "abi/launch.h"

#include <charconv>
#include <stdexcept>
#include <string_view>

namespace envpack::abi {

namespace {

constexpr int kFewestArguments = 9;
constexpr char kDefault[] = "DEFAULT";

// From 23.10 on the last argument is a folder or "DEFAULT". From 23.07 to 23.09 it is the platform of the
// model's configuration or "NONE"; the backend may contain a folder with a model.py for it.
std::string RuntimeDirectory(const std::string& backend_directory, const std::string& argument) {
  if (argument == kDefault || argument.find('/') != std::string::npos) return argument;
  return backend_directory + "/platform_handlers/" + argument;
}

template <typename Number>
Number Parse(const char* text, const char* what) {
  const std::string_view view(text);
  Number number{};
  const auto [end, code] = std::from_chars(view.data(), view.data() + view.size(), number);
  if (code != std::errc() || end != view.data() + view.size()) {
    throw std::invalid_argument(std::string(what) + " is not a number: '" + text + "'");
  }
  return number;
}

}  // namespace

Launch ParseLaunch(int argc, const char* const* argv) {
  if (argc < kFewestArguments) {
    throw std::invalid_argument("this program is started by a Triton server, with " +
                                std::to_string(kFewestArguments - 1) + " arguments or more");
  }
  Launch launch;
  launch.model_file = argv[1];
  launch.region = argv[2];
  launch.region_growth = Parse<std::size_t>(argv[4], "growth of the region");
  launch.server_pid = Parse<std::int64_t>(argv[5], "process id of the server");
  launch.backend_directory = argv[6];
  launch.control_handle = Parse<std::int64_t>(argv[7], "handle of the control record");
  launch.name = argv[8];
  launch.has_last_argument = argc > 9;
  launch.runtime_directory = RuntimeDirectory(launch.backend_directory, argc > 9 ? argv[9] : kDefault);
  if (launch.region_growth == 0) throw std::invalid_argument("growth of the region is 0");
  return launch;
}

}  // namespace envpack::abi
