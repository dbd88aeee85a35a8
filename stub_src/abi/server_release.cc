#include "abi/server_release.h"

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "abi/lines.h"
#include "abi/server_library.h"

namespace envpack::abi {

namespace {

constexpr char kExplicit[] = "ENVPACK_TRITON_RELEASE";
constexpr Release kFirstWithPlatform = 2307;     // as a ninth argument
constexpr Release kFirstWithUuidRegions = 2404;  // numbered before

bool IsDigits(std::string_view text) {
  for (const char c : text) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0) return false;
  }
  return !text.empty();
}

// "24.10", and what vendors put behind it ("24.10-py3"), as a number; 0 if it is none.
Release ParseRelease(std::string_view text) {
  constexpr std::size_t kLength = 5;
  if (text.size() < kLength || text[2] != '.') return 0;
  if (!IsDigits(text.substr(0, 2)) || !IsDigits(text.substr(3, 2))) return 0;
  if (text.size() > kLength && IsDigits(text.substr(kLength, 1))) return 0;
  return std::atoi(std::string(text.substr(0, 2)).c_str()) * 100 +
         std::atoi(std::string(text.substr(3, 2)).c_str());
}

Statement FromRelease(const std::string& place, const std::string& text) {
  const Release release = ParseRelease(text);
  if (release == 0) {
    throw ReleaseUnclear(place + " says '" + text + "', which is no Triton release; write it like " +
                         NameOf(kNewest));
  }
  if (release < kOldest) {
    throw ReleaseUnclear(place + " says Triton " + text + "; this stub speaks to " + NameOf(kOldest) +
                         " and later");
  }
  const bool is_newer = release > kNewest;
  return {place, text, is_newer ? kNewest : release, is_newer};
}

Statement Choice(Statement statement) {
  statement.is_choice = true;
  return statement;
}

// First line of a file, without blanks at its end; none if there is no such file.
std::optional<std::string> FirstLine(const std::string& path) {
  std::optional<std::string> first;
  ForEachLine(path, [&](const std::string& line) {
    first = line.substr(0, line.find_last_not_of(" \t\r") + 1);
    return false;
  });
  return first;
}

std::optional<std::string> Variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

// "<server>/backends/python" to "<server>".
std::string ServerFolder(const std::string& backend_directory) { return backend_directory + "/../.."; }

std::vector<Statement> AskEverybody(const Launch& launch, const std::string& stub, Release only) {
  std::vector<Statement> statements;
  if (const auto text = Variable(kExplicit)) statements.push_back(Choice(FromRelease(kExplicit, *text)));
  if (const auto text = FirstLine(stub + ".release")) {
    statements.push_back(Choice(FromRelease(stub + ".release", *text)));
  }
  if (const auto text = Variable("NVIDIA_TRITON_SERVER_VERSION")) {
    statements.push_back(FromRelease("NVIDIA_TRITON_SERVER_VERSION", *text));
  }
  if (const auto text = Variable("TRITON_SERVER_VERSION")) {
    statements.push_back(FromServerVersion("TRITON_SERVER_VERSION", *text));
  }
  const std::string file = ServerFolder(launch.backend_directory) + "/TRITON_VERSION";
  if (const auto text = FirstLine(file)) statements.push_back(FromServerVersion(file, *text));
  if (const auto library = ReadServerLibrary(launch.server_pid)) {
    statements.push_back(FromServerVersion(library->file, library->version));
  }
  if (only != 0) statements.push_back(Choice({"the build of this stub", NameOf(only), only}));
  return statements;
}

std::string Quote(const Statement& statement) {
  return statement.place + " says Triton " + statement.said +
         (statement.said == NameOf(statement.release) ? "" : " (" + NameOf(statement.release) + ")");
}

// A server that is newer than all known agrees with whoever chooses an epoch for it.
bool Agree(const Statement& one, const Statement& other) {
  if (EpochOf(one.release) == EpochOf(other.release)) return true;
  return one.is_newer_than_known != other.is_newer_than_known &&
         (one.is_newer_than_known ? other : one).is_choice;
}

bool IsUuid(std::string_view text) {
  constexpr std::size_t kLength = 36;
  if (text.size() != kLength) return false;
  for (std::size_t i = 0; i < kLength; ++i) {
    const bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (is_dash ? text[i] != '-' : std::isxdigit(static_cast<unsigned char>(text[i])) == 0) return false;
  }
  return true;
}

// What the command line itself shows of the server must fit to the release.
void CheckCommandLine(const Launch& launch, const Statement& statement) {
  const auto refuse = [&](const std::string& what) {
    throw ReleaseUnclear(Quote(statement) +
                         ", but the server that started this stub is another one: " + what);
  };
  if (launch.has_last_argument != (statement.release >= kFirstWithPlatform)) {
    refuse(std::string("it gave ") + (launch.has_last_argument ? "9" : "8") + " arguments");
  }
  const std::string_view name = launch.region;
  const std::string_view end = name.substr(name.rfind('_') + 1);
  const bool is_late = statement.release >= kFirstWithUuidRegions;
  if (is_late ? IsDigits(end) && end.size() < 8 : IsUuid(end)) {
    refuse("its regions are named like " + std::string(name));
  }
}

}  // namespace

Statement FromServerVersion(const std::string& place, const std::string& version) {
  const std::size_t dot = version.find('.');
  const std::string_view rest =
      std::string_view(version).substr(dot == std::string::npos ? version.size() : dot + 1);
  const std::string minor(rest.substr(0, rest.find_first_not_of("0123456789")));
  const std::string start = "2." + minor + ".";
  if (minor.empty() || version.compare(0, 2, "2.") != 0) {
    throw ReleaseUnclear(place + " says '" + version + "', which is no version of a Triton server");
  }
  const KnownRelease* found = nullptr;
  for (const KnownRelease& known : kReleases) {
    const std::string server(known.server);
    if (server.compare(0, start.size(), start) != 0) continue;
    if (found == nullptr || version.compare(0, server.size(), server) == 0) found = &known;
  }
  if (found != nullptr) return {place, version, found->release};
  const std::string oldest(kReleases[0].server);
  if (std::atoi(minor.c_str()) < std::atoi(oldest.c_str() + 2)) {
    throw ReleaseUnclear(place + " says server " + version + "; this stub speaks to " + oldest + " (" +
                         NameOf(kOldest) + ") and later");
  }
  return {place, version, kNewest, true};
}

Release FindServerRelease(const Launch& launch, const std::string& stub, Release only) {
  const std::vector<Statement> statements = AskEverybody(launch, stub, only);
  if (statements.empty()) {
    throw ReleaseUnclear("nothing says which Triton release the server is of; set " + std::string(kExplicit) +
                         ", or write it into " + stub + ".release");
  }
  const Statement& first = statements.front();
  for (const Statement& other : statements) {
    if (!Agree(first, other)) {
      throw ReleaseUnclear(Quote(first) + ", but " + Quote(other) +
                           "; the stub would crash the server if it took the wrong one");
    }
  }
  CheckCommandLine(launch, first);
  if (first.is_newer_than_known) {
    std::fprintf(stderr, "envpack stub: %s says %s, which is newer than this stub; it is spoken to like %s\n",
                 first.place.c_str(), first.said.c_str(), NameOf(first.release).c_str());
  }
  return first.release;
}

}  // namespace envpack::abi
