// What users set for a stub: parameters of the configuration, and environment variables.
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>

#include "abi/values.h"
#include "check.h"
#include "front/settings.h"

using namespace envpack;
using front::FindParameter;
using front::Settings;

namespace {

std::string Found(const std::string& configuration) {
  return FindParameter(configuration, "WANTED").value_or("none");
}

abi::Command With(const std::string& name, const std::string& value) {
  return abi::InitializeCommand{{{"model_name", "m"},
                                 {"model_config", "{\"name\":\"m\",\"parameters\":{\"" + name +
                                                      "\":{\"string_value\":\"" + value + "\"}}}"}}};
}

}  // namespace

CASE(a_parameter_is_found_where_the_server_writes_it) {
  CHECK_EQ(Found(R"({"parameters":{"WANTED":{"string_value":"warm"}}})"), "warm");
  CHECK_EQ(Found(R"({ "name" : "m", "input" : [ {"dims":[-1, 2.5e3]} ],
                     "parameters" : { "A" : { "string_value" : "1" }, "WANTED" : { "string_value" : "" } } })"),
           "");
  CHECK_EQ(
      Found(R"({"parameters":{"A":{"string_value":"}\"WANTED\":{"},"WANTED":{"string_value":"x"}},"z":1})"),
      "x");
}

CASE(what_only_looks_like_a_parameter_is_none) {
  for (const char* configuration :
       {"", "{", "\"", "{\"parameters\"", "nonsense", R"({"parameters":{}})",
        R"({"parameters":{"OTHER":{"string_value":"WANTED"}}})", R"({"WANTED":{"string_value":"x"}})",
        R"({"a":{"parameters":{"WANTED":{"string_value":"x"}}}})", R"({"parameters":{"WANTED":"x"}})",
        R"({"parameters":{"WANTED":{"other":"x"}}})", R"({"parameters":{"WANTED":{"string_value":1}}})",
        R"({"parameters":{"A":{"WANTED":{"string_value":"x"}}}})",
        R"({"parameters":{"WANTED":{}},"b":{"c":{"string_value":"x"}}})",
        R"({"parameters":[{"WANTED":{"string_value":"x"}}]})", "}}]]}",
        "{\"parameters\":{\"WANTED\":{\"string_value\":\"x"}) {
    CHECK_EQ(Found(configuration), "none");
  }
}

CASE(a_parameter_has_priority_over_the_variable) {
  setenv("ENVPACK_START", "warm", 1);
  CHECK(!Settings::Of(With("ENVPACK_START", "cold")).is_warm);
  CHECK(Settings::Of(With("OTHER", "cold")).is_warm);
  CHECK(Settings::Of(abi::AutoCompleteCommand{"{}"}).is_warm);
  unsetenv("ENVPACK_START");
  CHECK(!Settings::Of(abi::AutoCompleteCommand{"{}"}).is_warm);
  CHECK_EQ(Settings::Of(With("ENVPACK_RESTARTS", "5")).most_deaths, 5u);
  CHECK_EQ(Settings::Of(With("ENVPACK_EXECUTE_TIMEOUT", "0.5")).execute_limit->count(), 500);
  CHECK(!Settings::Of(With("ENVPACK_EXECUTE_TIMEOUT", "0")).execute_limit);
  CHECK(Settings::Of(With("ENVPACK_TEMPLATE", "initialize")).initialize_in_template);
}

CASE(a_wrong_value_is_named) {
  CHECK_HAS(THROWN(std::invalid_argument, Settings::Of(With("ENVPACK_START", "hot"))),
            "ENVPACK_START is not 'warm' or 'cold': 'hot'");
  CHECK_HAS(THROWN(std::invalid_argument, Settings::Of(With("ENVPACK_TEMPLATE", ""))),
            "ENVPACK_TEMPLATE is not");
  CHECK_HAS(THROWN(std::invalid_argument, Settings::Of(With("ENVPACK_RESTARTS", "-1"))),
            "ENVPACK_RESTARTS is not");
  CHECK_HAS(THROWN(std::invalid_argument, Settings::Of(With("ENVPACK_EXECUTE_TIMEOUT", "1e9"))),
            "ENVPACK_EXECUTE_TIMEOUT is not");
}
