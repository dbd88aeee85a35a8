// pb_utils.MetricFamily and its metrics.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "abi/values.h"
#include "forks.h"

namespace envpack::module {

// A metric in the server, which goes when this object or its family goes. Any thread, with the GIL.
class Metric {
 public:
  Metric(abi::ServerAddress family, const abi::Metric& metric);
  ~Metric();
  Metric(const Metric&) = delete;
  Metric& operator=(const Metric&) = delete;

  void Change(abi::MetricChange change, double value);
  double Value();

  // Deletes the metric in the server; whatever is asked of it afterwards is refused.
  void Invalidate();

 private:
  abi::ServerAddress Live(const std::string& prefix) const;

  // Held while the server works on the metric, so that nothing deletes it meanwhile; taken without the GIL.
  std::mutex mutex_;
  abi::ServerAddress address_;
  const forks::Maker maker_;
};

class MetricFamily {
 public:
  MetricFamily(const std::string& name, const std::string& description, abi::MetricKind kind);
  ~MetricFamily();
  MetricFamily(const MetricFamily&) = delete;
  MetricFamily& operator=(const MetricFamily&) = delete;

  // `labels` is a dict or None, `buckets` a list or None; throws ModelException for others.
  std::shared_ptr<Metric> Make(const pybind11::object& labels, const pybind11::object& buckets);

 private:
  const abi::MetricKind kind_;
  abi::ServerAddress address_;
  const forks::Maker maker_;
  std::vector<std::weak_ptr<Metric>> metrics_;
};

void BindMetrics(pybind11::module_& module);

}  // namespace envpack::module
