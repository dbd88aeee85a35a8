#include "front/settings.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>

namespace envpack::front {

namespace {

constexpr double kMostSeconds = 1e6;
constexpr std::string_view kPath[] = {"parameters", "",
                                      "string_value"};  // the second is the parameter's name
constexpr int kDepth = 3;

// Reads JSON token by token. A token is a string without its quotes, or one character; numbers and words are
// several tokens.
class Tokens {
 public:
  explicit Tokens(std::string_view text) : text_(text) {}

  // False at the end.
  bool Next() {
    const auto begin = text_.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos) return false;
    text_.remove_prefix(begin);
    is_string_ = text_.front() == '"';
    if (is_string_) return TakeString();
    token_ = text_.substr(0, 1);
    text_.remove_prefix(1);
    return true;
  }

  bool Is(char character) const { return !is_string_ && token_.front() == character; }
  bool is_string() const { return is_string_; }
  std::string_view token() const { return token_; }

 private:
  bool TakeString() {
    std::size_t end = 1;
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return false;
    token_ = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return true;
  }

  std::string_view text_;
  std::string_view token_;
  bool is_string_ = false;
};

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

// `matched` counts the keys of the path that enclose the current place.
std::optional<std::string> FindParameter(std::string_view configuration, std::string_view name) {
  Tokens tokens(configuration);
  int depth = 0, matched = 0;
  std::string_view last;  // the string before this token
  while (tokens.Next()) {
    if (tokens.is_string()) {
      if (depth == kDepth && matched == kDepth) return std::string(tokens.token());
      last = tokens.token();
    } else if (tokens.Is(':')) {
      const bool is_next = depth >= 1 && depth <= kDepth && matched == depth - 1;
      if (is_next && last == (depth == 2 ? name : kPath[depth - 1])) matched = depth;
    } else if (tokens.Is('{') || tokens.Is('[')) {
      ++depth;
    } else if (tokens.Is('}') || tokens.Is(']')) {
      if (matched >= --depth + 1) matched = depth;
    } else if (tokens.Is(',') && matched >= depth) {
      matched = depth - 1;
    }
  }
  return std::nullopt;
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
