#include "model/restart_count.h"

namespace envpack::model {

namespace {

// In JSON. Names of folders that the server accepts have no control characters.
std::string Quoted(const std::map<std::string, std::string>& arguments, const char* name) {
  const auto found = arguments.find(name);
  std::string text = "\"";
  for (const char c : found != arguments.end() ? found->second : std::string()) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + "\"";
}

}  // namespace

// The objects stay in the server when this process dies, so the counter keeps its value for the next one.
void CountRestart(abi::Wire& wire, const std::map<std::string, std::string>& arguments) {
  if (!wire.Has(abi::Feature::kMetrics)) return;
  const abi::ServerAddress family = wire.CreateMetricFamily(
      {"envpack_restarts_total", "Number of times that a model's process has died and was replaced",
       abi::MetricKind::kCounter});
  const std::string labels = "{\"model\":" + Quoted(arguments, "model_name") +
                             ",\"version\":" + Quoted(arguments, "model_version") + "}";
  wire.ChangeMetric(wire.CreateMetric(family, {labels, {}}), abi::MetricChange::kIncrement, 1);
}

}  // namespace envpack::model
