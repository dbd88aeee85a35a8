#include "front/settings.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>

#include "front/model_parameters.h"

namespace envpack::front {

namespace {

constexpr double kMostSeconds = 1e6;

std::string_view ConfigurationIn(const abi::Command& command) {
  if (const auto* completion = std::get_if<abi::AutoCompleteCommand>(&command))
    return completion->model_config;
  const auto& arguments = std::get<abi::InitializeCommand>(command).arguments;
  const auto found = arguments.find("model_config");
  return found != arguments.end() ? std::string_view(found->second) : std::string_view();
}

class Values {
 public:
  explicit Values(const abi::Command& command) : configuration_(ConfigurationIn(command)) {}

  std::optional<std::string> Find(const char* name) const {
    if (auto value = FindParameter(configuration_, name)) return value;
    const char* variable = std::getenv(name);
    return variable != nullptr ? std::optional<std::string>(variable) : std::nullopt;
  }

 private:
  std::string_view configuration_;
};

[[noreturn]] void Fail(const std::string& name, const std::string& what, const std::string& value,
                       const std::string& help) {
  throw std::invalid_argument(name + " is not " + what + ": '" + value + "'" + help);
}

std::size_t MostDeaths(const std::string& text) {
  std::size_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || end != text.data() + text.size()) {
    Fail("ENVPACK_RESTARTS", "a number", text,
         ". It says how often a model may die within a minute; 0 for no restart.");
  }
  return number;
}

// Not std::from_chars, which some C++ libraries do not have for floating point numbers.
std::optional<std::chrono::milliseconds> ExecuteLimit(const std::string& text) {
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0' || !std::isfinite(seconds) || seconds < 0 ||
      seconds > kMostSeconds) {
    Fail("ENVPACK_EXECUTE_TIMEOUT", "a number of seconds", text, "");
  }
  if (seconds == 0) return std::nullopt;
  return std::chrono::milliseconds(std::lround(seconds * 1000));
}

// Whether `text` is `yes`; it may be `no` too.
bool Choose(const std::string& name, const std::string& text, const std::string& yes, const std::string& no) {
  if (text != yes && text != no) Fail(name, "'" + yes + "' or '" + no + "'", text, "");
  return text == yes;
}

}  // namespace

Settings Settings::Of(const abi::Command& command) {
  const Values values(command);
  Settings settings;
  if (const auto text = values.Find("ENVPACK_RESTARTS")) settings.most_deaths = MostDeaths(*text);
  if (const auto text = values.Find("ENVPACK_EXECUTE_TIMEOUT")) settings.execute_limit = ExecuteLimit(*text);
  if (const auto text = values.Find("ENVPACK_START")) {
    settings.is_warm = Choose("ENVPACK_START", *text, "warm", "cold");
  }
  if (const auto text = values.Find("ENVPACK_TEMPLATE")) {
    settings.initialize_in_template = Choose("ENVPACK_TEMPLATE", *text, "initialize", "import");
  }
  return settings;
}

}  // namespace envpack::front
