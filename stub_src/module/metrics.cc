// pb_utils.MetricFamily and its metrics.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "abi/values.h"
#include "base/forks.h"
#include "module/conversions.h"
#include "module/error.h"
#include "module/server_link.h"

namespace py = pybind11;

namespace envpack::module {

namespace {

constexpr const char* kMetricsAre = "Metrics and their families are";

// Indexed by abi::MetricChange.
constexpr const char* kPrefixes[] = {
    "Failed to increment metric value: ", "Failed to set metric value: ", "Failed to observe metric value: "};

std::optional<std::vector<double>> CheckedBuckets(abi::MetricKind kind, const py::object& buckets) {
  const bool wanted = kind == abi::MetricKind::kHistogram;
  if (buckets.is_none()) {
    if (wanted) throw ModelException("Failed to create metric. Missing required buckets.");
    return std::nullopt;
  }
  if (!py::isinstance<py::list>(buckets)) {
    throw ModelException("Failed to create metric. Buckets must be a list.");
  }
  if (!wanted) throw ModelException("Failed to create metric. Unexpected buckets found.");
  try {
    return buckets.cast<std::vector<double>>();
  } catch (const py::cast_error&) {
    throw ModelException("Failed to create metric. Buckets must be numbers.");
  }
}

// A metric in the server, which is deleted with this object or its family. Any thread, with the GIL.
class Metric {
 public:
  Metric(abi::ServerAddress family, const abi::Metric& metric)
      : address_(CallServer("Error when creating Metric: ",
                            [&](abi::Wire& wire) { return wire.CreateMetric(family, metric); })) {}
  ~Metric() {
    if (owner_process_.IsThisProcess()) Invalidate();
  }

  template <abi::MetricChange kChange>
  void Change(double value) {
    RequireOwner(owner_process_, kMetricsAre);
    const std::string prefix = kPrefixes[static_cast<int>(kChange)];
    CallServer(prefix, [&](abi::Wire& wire) {
      if (kChange == abi::MetricChange::kObserve) Require(wire, abi::Feature::kHistograms, "Histograms need");
      const std::lock_guard lock(mutex_);
      wire.ChangeMetric(CheckedAddress(prefix), kChange, value);
    });
  }

  double Value() {
    RequireOwner(owner_process_, kMetricsAre);
    const std::string prefix = "Failed to get metric value: ";
    return CallServer(prefix, [&](abi::Wire& wire) {
      const std::lock_guard lock(mutex_);
      return wire.MetricValue(CheckedAddress(prefix));
    });
  }

  // Deletes the metric in the server, which keeps it after an error. Afterwards every operation fails.
  void Invalidate() {
    abi::Attempt([this] {
      CallServer("", [this](abi::Wire& wire) {
        const std::lock_guard lock(mutex_);
        if (const auto address = std::exchange(address_, 0)) wire.DeleteMetric(address);
      });
    });
  }

 private:
  abi::ServerAddress CheckedAddress(const std::string& prefix) const {
    if (address_ == 0) {
      throw ModelException(prefix +
                           "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. "
                           "Keep the family for as long as its metrics are used.");
    }
    return address_;
  }

  // Held during an operation of the server, so that the metric lives. Never locked with the GIL held.
  std::mutex mutex_;
  abi::ServerAddress address_;
  const forks::OwnerProcess owner_process_;
};

class MetricFamily {
 public:
  MetricFamily(const std::string& name, const std::string& description, abi::MetricKind kind)
      : kind_(kind), address_(CallServer("Error when creating MetricFamily: ", [&](abi::Wire& wire) {
          if (kind == abi::MetricKind::kHistogram)
            Require(wire, abi::Feature::kHistograms, "Histograms need");
          Require(wire, abi::Feature::kMetrics, "Custom metrics need");
          return wire.CreateMetricFamily({name, description, kind});
        })) {}
  // The server rejects the deletion of a family that has metrics.
  ~MetricFamily() {
    if (!owner_process_.IsThisProcess()) return;
    for (const auto& metric : metrics_) {
      if (const auto alive = metric.lock()) alive->Invalidate();
    }
    abi::Attempt([this] { CallServer("", [this](abi::Wire& wire) { wire.DeleteMetricFamily(address_); }); });
  }
  MetricFamily(MetricFamily&&) = delete;

  // `labels` is a dict or None, `buckets` a list or None. Throws ModelException for other types.
  std::shared_ptr<Metric> Make(const py::object& labels, const py::object& buckets) {
    RequireOwner(owner_process_, kMetricsAre);
    if (!labels.is_none() && !py::isinstance<py::dict>(labels)) {
      throw ModelException("Failed to create metric. Labels must be a dictionary.");
    }
    abi::Metric wanted;
    wanted.labels = ToJson(labels);
    wanted.buckets = CheckedBuckets(kind_, buckets);
    auto metric = std::make_shared<Metric>(address_, wanted);
    const auto dead = [](const auto& other) { return other.expired(); };
    metrics_.erase(std::remove_if(metrics_.begin(), metrics_.end(), dead), metrics_.end());
    metrics_.push_back(metric);
    return metric;
  }

 private:
  const abi::MetricKind kind_;
  abi::ServerAddress address_;
  const forks::OwnerProcess owner_process_;
  std::vector<std::weak_ptr<Metric>> metrics_;
};

}  // namespace

void BindMetrics(py::module_& module) {
  py::enum_<abi::MetricKind>(module, "MetricKind")
      .value("COUNTER", abi::MetricKind::kCounter)
      .value("GAUGE", abi::MetricKind::kGauge)
      .value("HISTOGRAM", abi::MetricKind::kHistogram)
      .export_values();
  py::class_<Metric, std::shared_ptr<Metric>>(module, "Metric")
      .def("increment", &Metric::Change<abi::MetricChange::kIncrement>, py::arg("value"))
      .def("set", &Metric::Change<abi::MetricChange::kSet>, py::arg("value"))
      .def("observe", &Metric::Change<abi::MetricChange::kObserve>, py::arg("value"))
      .def("value", &Metric::Value);
  py::class_<MetricFamily, std::shared_ptr<MetricFamily>> family(module, "MetricFamily");
  family
      .def(py::init<const std::string&, const std::string&, abi::MetricKind>(), py::arg("name").none(false),
           py::arg("description").none(false), py::arg("kind").none(false))
      .def("Metric", &MetricFamily::Make, py::arg("labels") = py::none(), py::arg("buckets") = py::none());
  for (const char* kind : {"COUNTER", "GAUGE", "HISTOGRAM"}) family.attr(kind) = module.attr(kind);
}

}  // namespace envpack::module
