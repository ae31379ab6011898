// The one file that knows Python: srl._core.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pool/pool.h"

namespace py = pybind11;

namespace srl {
namespace {

const char* Name(DType dtype) {
  static constexpr const char* kNames[] = {"bool", "uint8", "int32", "int64", "float32", "float64"};
  return kNames[static_cast<int>(dtype)];
}

const char* Name(Space::Kind kind) {
  static constexpr const char* kNames[] = {"Box", "Discrete", "MultiDiscrete"};
  return kNames[static_cast<int>(kind)];
}

py::dict Describe(const Space& space) {
  py::dict result;
  result["kind"] = Name(space.kind);
  result["dtype"] = Name(space.dtype);
  result["shape"] = py::tuple(py::cast(space.shape));
  result["low"] = space.low;
  result["high"] = space.high;
  result["nvec"] = space.nvec;
  return result;
}

py::dict Describe(const Specs& specs) {
  py::dict result;
  py::list observation;
  for (const Field& field : specs.observation) {
    observation.append(py::make_tuple(field.name, Describe(field.space)));
  }
  result["agents"] = specs.agents;
  result["observation"] = observation;
  result["action"] = Describe(specs.action);
  result["statistics"] = specs.statistics;
  result["max_episode_steps"] = specs.max_episode_steps;
  return result;
}

Options ToOptions(const py::dict& dict) {
  std::map<std::string, Options::Value> values;
  for (const auto& [key, value] : dict) {
    const auto name = key.cast<std::string>();
    if (py::isinstance<py::bool_>(value)) {
      values[name] = value.cast<bool>();
    } else if (py::isinstance<py::int_>(value)) {
      values[name] = value.cast<std::int64_t>();
    } else if (py::isinstance<py::float_>(value)) {
      values[name] = value.cast<double>();
    } else if (py::isinstance<py::str>(value)) {
      values[name] = value.cast<std::string>();
    } else {
      throw py::value_error("option '" + name + "' is neither a flag, a number nor a text");
    }
  }
  return Options(std::move(values));
}

std::span<const std::byte> BytesOf(const py::array& array) {
  if (!(array.flags() & py::array::c_style)) throw py::value_error("the array is not contiguous");
  return {static_cast<const std::byte*>(array.data()), static_cast<std::size_t>(array.nbytes())};
}

template <typename T>
T* Pointer(py::array array) {
  if (!(array.flags() & py::array::c_style)) throw py::value_error("the array is not contiguous");
  return static_cast<T*>(array.mutable_data());
}

// A Batch over NumPy arrays. It keeps them alive, and can tell whether somebody else does too.
class BatchView {
 public:
  BatchView(const py::list& observation, py::array reward, py::array terminated,
            py::array truncated, py::array episode_return, py::array episode_length,
            py::array statistics, py::array env_id, py::list watched)
      : watched_(std::move(watched)) {
    for (const py::handle& field : observation) {
      batch.observation.push_back(Pointer<std::byte>(field.cast<py::array>()));
    }
    batch.reward = Pointer<float>(reward);
    batch.terminated = Pointer<bool>(terminated);
    batch.truncated = Pointer<bool>(truncated);
    batch.episode_return = Pointer<float>(episode_return);
    batch.episode_length = Pointer<std::int32_t>(episode_length);
    batch.statistics = Pointer<float>(statistics);
    batch.env_id = Pointer<std::int32_t>(env_id);
  }

  // Remembers the present reference counts of the watched objects as those of an idle batch.
  void Settle() {
    idle_counts_.clear();
    for (const py::handle& object : watched_) idle_counts_.push_back(Py_REFCNT(object.ptr()));
  }

  bool InUse() const {
    std::size_t i = 0;
    for (const py::handle& object : watched_) {
      if (Py_REFCNT(object.ptr()) > idle_counts_[i++]) return true;
    }
    return false;
  }

  Batch batch;

 private:
  py::list watched_;
  std::vector<Py_ssize_t> idle_counts_;
};

py::bytes ToBytes(const std::vector<std::byte>& data) {
  return py::bytes(reinterpret_cast<const char*>(data.data()), data.size());
}

std::span<const std::byte> ToSpan(const py::bytes& bytes) {
  char* data = nullptr;
  Py_ssize_t size = 0;
  PyBytes_AsStringAndSize(bytes.ptr(), &data, &size);
  return {reinterpret_cast<const std::byte*>(data), static_cast<std::size_t>(size)};
}

std::vector<std::string> EnvironmentIds() {
  std::vector<std::string> ids;
  for (const auto& [id, type] : Registry()) ids.push_back(id);
  return ids;
}

double BarePhysics(const std::string& id, const py::dict& options, int num_envs, int threads,
                   double seconds) {
  const auto found = Registry().find(id);
  if (found == Registry().end() || !found->second.bare_physics) {
    std::string known;
    for (const auto& [name, type] : Registry()) {
      if (type.bare_physics) known += (known.empty() ? "" : ", ") + name;
    }
    throw py::value_error("'" + id + "' has no bare physics to measure; these have: " + known);
  }
  const Options converted = ToOptions(options);
  py::gil_scoped_release release;
  return found->second.bare_physics(converted, num_envs, threads, seconds);
}

using Seed = std::optional<std::uint64_t>;

void BindPool(py::module_& module) {
  py::class_<Pool>(module, "Pool")
      .def(py::init([](const std::string& id, int num_envs, int batch_size, int threads,
                       const py::dict& options) {
             return std::make_unique<Pool>(id, num_envs, batch_size, threads, ToOptions(options));
           }),
           py::arg("id"), py::arg("num_envs"), py::arg("batch_size"), py::arg("threads"),
           py::arg("options"))
      .def_property_readonly("specs", [](const Pool& pool) { return Describe(pool.specs()); })
      .def_property_readonly("threads", &Pool::threads)
      .def_property_readonly("in_flight", &Pool::in_flight)
      .def("provision_needed", &Pool::ProvisionNeeded)
      .def("reset",
           [](Pool& pool, Seed seed, const py::array_t<int>& env_ids, BatchView& view) {
             const std::span<const int> ids(env_ids.data(),
                                            static_cast<std::size_t>(env_ids.size()));
             py::gil_scoped_release release;
             pool.Reset(seed, ids, &view.batch);
           })
      .def("step",
           [](Pool& pool, const py::array& actions, BatchView& view) {
             const auto bytes = BytesOf(actions);
             py::gil_scoped_release release;
             pool.Step(bytes, &view.batch);
           })
      .def("send_reset",
           [](Pool& pool, Seed seed) {
             py::gil_scoped_release release;
             pool.SendReset(seed);
           })
      .def("send",
           [](Pool& pool, const py::array& actions, const py::array_t<int>& env_ids) {
             const auto bytes = BytesOf(actions);
             const std::span<const int> ids(env_ids.data(),
                                            static_cast<std::size_t>(env_ids.size()));
             py::gil_scoped_release release;
             pool.Send(bytes, ids);
           })
      .def("provide", [](Pool& pool, BatchView& view) { pool.Provide(&view.batch); })
      .def("receive",
           [](Pool& pool) {
             py::gil_scoped_release release;
             pool.Receive();
           })
      .def("save", [](Pool& pool) { return ToBytes(pool.Save()); })
      .def("restore", [](Pool& pool, const py::bytes& state) { pool.Restore(ToSpan(state)); })
      .def("inspect", [](Pool& pool, int env_id) { return pool.At(env_id).Inspect(); })
      .def("inject",
           [](Pool& pool, int env_id, const std::string& name, const std::vector<double>& values) {
             pool.At(env_id).Inject(name, values);
           })
      .def("model", [](Pool& pool, int env_id) { return ToBytes(pool.At(env_id).Model()); });
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  module.doc() = "The C++ core of srl: environment pools.";
  module.def("environment_ids", &EnvironmentIds);
  module.def("bare_physics", &BarePhysics, py::arg("id"), py::arg("options"), py::arg("num_envs"),
             py::arg("threads"), py::arg("seconds"));
  py::class_<BatchView>(module, "Batch")
      .def(py::init<const py::list&, py::array, py::array, py::array, py::array, py::array,
                    py::array, py::array, py::list>(),
           py::arg("observation"), py::arg("reward"), py::arg("terminated"), py::arg("truncated"),
           py::arg("episode_return"), py::arg("episode_length"), py::arg("statistics"),
           py::arg("env_id"), py::arg("watched"))
      .def("settle", &BatchView::Settle)
      .def("in_use", &BatchView::InUse);
  BindPool(module);
}

}  // namespace srl
