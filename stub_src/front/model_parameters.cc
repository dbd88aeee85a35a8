#include "front/model_parameters.h"

namespace envpack::front {

namespace {

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

}  // namespace envpack::front
