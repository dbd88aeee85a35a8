// Test cases and checks. A test executable lists its cases with --list, and runs the named ones, or all.
#pragma once

#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>

namespace envpack::test {

// A failed check, with its location and the values.
class Failed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Register {
  Register(const char* name, void (*body)());
};

// The main() of a test executable.
int RunCases(int argc, char** argv);

[[noreturn]] void Fail(const char* file, int line, const std::string& what);

template <typename Left, typename Right>
void CheckEqual(const Left& left, const Right& right, const char* text, const char* file, int line) {
  if (left == right) return;
  std::ostringstream out;
  out << text << ": " << left << " is not " << right;
  Fail(file, line, out.str());
}

// The message of the Exception that `action` throws. Fails if it throws none.
template <typename Exception>
std::string Thrown(const std::function<void()>& action, const char* text, const char* file, int line) {
  try {
    action();
  } catch (const Exception& error) {
    return error.what();
  }
  Fail(file, line, std::string(text) + " does not throw");
}

// Whether `text` contains `part`.
inline bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace envpack::test

#define CASE(name)                                                     \
  static void name();                                                  \
  static const ::envpack::test::Register register_##name(#name, name); \
  static void name()
#define CHECK(condition) \
  if (!(condition)) ::envpack::test::Fail(__FILE__, __LINE__, #condition)
#define CHECK_EQ(left, right) ::envpack::test::CheckEqual(left, right, #left, __FILE__, __LINE__)
#define CHECK_HAS(text, part)                                             \
  if (const std::string seen = (text); !::envpack::test::Has(seen, part)) \
  ::envpack::test::Fail(__FILE__, __LINE__, "'" + seen + "' does not contain '" + (part) + "'")
#define THROWN(Exception, action) \
  ::envpack::test::Thrown<Exception>([&] { action; }, #action, __FILE__, __LINE__)
