#include "front/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <variant>

namespace envpack::front {

namespace {

constexpr double kMostSeconds = 1e6;
constexpr char kBlanks[] = " \t\r\n";

// Takes a value of JSON from the start of a text, without blanks around it. It ends at a comma, a colon or a
// bracket that are not part of it.
std::string_view TakeValue(std::string_view& rest) {
  rest.remove_prefix(std::min(rest.find_first_not_of(kBlanks), rest.size()));
  std::size_t end = 0;
  bool is_in_string = false;
  for (int depth = 0; end < rest.size(); ++end) {
    const char c = rest[end];
    if (is_in_string && c == '\\') {
      ++end;
    } else if (c == '"') {
      is_in_string = !is_in_string;
    } else if (!is_in_string && (c == '{' || c == '[')) {
      ++depth;
    } else if (!is_in_string && (c == '}' || c == ']')) {
      if (--depth < 0) break;
    } else if (!is_in_string && depth == 0 && (c == ',' || c == ':')) {
      break;
    }
  }
  const std::string_view value = rest.substr(0, end);
  rest.remove_prefix(std::min(end, rest.size()));
  return value.substr(0, value.find_last_not_of(kBlanks) + 1);
}

// The value of a member of an object of JSON; empty if it is no object or has no such member.
std::string_view MemberOf(std::string_view object, std::string_view name) {
  const std::string quoted = '"' + std::string(name) + '"';
  const bool is_object = !object.empty() && object.front() == '{';
  for (bool goes_on = is_object; goes_on; goes_on = !object.empty() && object.front() == ',') {
    object.remove_prefix(1);
    const std::string_view key = TakeValue(object);
    if (object.empty() || object.front() != ':') break;
    object.remove_prefix(1);
    const std::string_view value = TakeValue(object);
    if (key == quoted) return value;
  }
  return {};
}

std::string_view ConfigurationIn(const abi::Command& command) {
  if (const auto* completion = std::get_if<abi::AutoCompleteCommand>(&command))
    return completion->model_config;
  const auto& arguments = std::get<abi::InitializeCommand>(command).arguments;
  const auto found = arguments.find("model_config");
  return found != arguments.end() ? std::string_view(found->second) : std::string_view();
}

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

std::optional<std::string> FindParameter(std::string_view configuration, std::string_view name) {
  std::string_view rest = configuration;
  const std::string_view parameter = MemberOf(MemberOf(TakeValue(rest), "parameters"), name);
  const std::string_view value = MemberOf(parameter, "string_value");
  if (value.size() < 2 || value.front() != '"' || value.back() != '"') return std::nullopt;
  return std::string(value.substr(1, value.size() - 2));
}

Settings Settings::Of(const abi::Command& command) {
  const std::string_view configuration = ConfigurationIn(command);
  const auto find = [&](const char* name) {
    auto value = FindParameter(configuration, name);
    const char* variable = std::getenv(name);
    if (!value && variable != nullptr) value = variable;
    return value;
  };
  Settings settings;
  if (const auto text = find("ENVPACK_RESTARTS")) settings.most_deaths = MostDeaths(*text);
  if (const auto text = find("ENVPACK_EXECUTE_TIMEOUT")) settings.execute_limit = ExecuteLimit(*text);
  if (const auto text = find("ENVPACK_START")) {
    settings.is_warm = Choose("ENVPACK_START", *text, "warm", "cold");
  }
  if (const auto text = find("ENVPACK_TEMPLATE")) {
    settings.initialize_in_template = Choose("ENVPACK_TEMPLATE", *text, "initialize", "import");
  }
  return settings;
}

}  // namespace envpack::front
