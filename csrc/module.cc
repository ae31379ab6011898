// The one file that knows Python: srl._core.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/physics.h"
#include "plugin/plugin.h"
#include "pool/call_guard.h"
#include "pool/pool.h"
#include "xla/calls.h"
#include "xla/pool_calls.h"

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

template <typename T>
T* Pointer(py::array array) {
  if (!(array.flags() & py::array::c_style)) throw py::value_error("the array is not contiguous");
  return static_cast<T*>(array.mutable_data());
}

// A Batch over the NumPy arrays of a Timestep. It keeps them alive, and knows whether other
// references do too.
class BatchView {
 public:
  BatchView(py::object timestep, const py::list& observation, py::array reward,
            py::array terminated, py::array truncated, py::array episode_return,
            py::array episode_length, py::array statistics, py::array env_id, py::list watched)
      : timestep(std::move(timestep)), watched_(std::move(watched)) {
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
  const py::object timestep;
  bool provided = false;

 private:
  py::list watched_;
  std::vector<Py_ssize_t> idle_counts_;
};

// A pool together with the Python memory that it writes into. What is called at every step is
// here, and not in Python, because a step may take less than a microsecond.
class PythonPool {
 public:
  PythonPool(const std::string& id, const PoolConfig& config, const Options& options)
      : pool(id, config, options) {}
  ~PythonPool() {
    if (callable_) callable_->Close();
  }
  PythonPool(const PythonPool&) = delete;
  PythonPool& operator=(const PythonPool&) = delete;

  // `make_batch()` gives a BatchView of batch_size environments; `to_actions(array, count)` gives
  // the array as actions of `count` environments, or raises; `to_ids(array)` gives it as int32 [n].
  void Bind(py::function make_batch, py::function to_actions, py::function to_ids) {
    make_batch_ = std::move(make_batch);
    to_actions_ = std::move(to_actions);
    to_ids_ = std::move(to_ids);
    const py::object scalar = py::module_::import("numpy").attr("dtype");
    action_type_ = scalar(Name(pool.specs().action.dtype));
    id_type_ = scalar("int32");
  }

  py::object Reset(std::optional<std::uint64_t> seed, const py::array_t<int>& env_ids,
                   BatchView* into) {
    const CallGuard guard(&in_use_);
    BatchView& view = into ? *into : Idle();
    const std::span<const int> ids(env_ids.data(), static_cast<std::size_t>(env_ids.size()));
    Work([&] { pool.Reset(seed, ids, &view.batch); });
    return view.timestep;
  }

  py::object Step(const py::object& actions, BatchView* into) {
    const CallGuard guard(&in_use_);
    BatchView& view = into ? *into : Idle();
    const py::object array = Actions(actions, pool.num_envs());
    const auto bytes = BytesOf(array);
    Work([&] { pool.Step(bytes, &view.batch); });
    return view.timestep;
  }

  // What compiled programs call.
  std::shared_ptr<CallablePool> Callable() {
    if (!callable_) callable_ = std::make_shared<CallablePool>(&pool);
    return callable_;
  }

  void SendReset(std::optional<std::uint64_t> seed) {
    const CallGuard guard(&in_use_);
    while (static_cast<int>(queue_.size()) < pool.ProvisionNeeded()) Provide();
    Work([&] { pool.SendReset(seed); });
  }

  void Send(const py::object& actions, const py::object& env_ids) {
    const CallGuard guard(&in_use_);
    const bool plain =
        Is(env_ids, id_type_) && py::reinterpret_borrow<py::array>(env_ids).ndim() == 1;
    const py::object held = plain ? env_ids : to_ids_(env_ids);
    const auto ids_array = py::reinterpret_borrow<py::array_t<int>>(held);
    const std::span<const int> ids(ids_array.data(), static_cast<std::size_t>(ids_array.size()));
    const py::object array = Actions(actions, static_cast<int>(ids.size()));
    while (static_cast<int>(queue_.size()) < pool.ProvisionNeeded()) Provide();
    pool.Send(BytesOf(array), ids);
  }

  py::object Receive() {
    const CallGuard guard(&in_use_);
    Work([&] { pool.Receive(); });
    return Next();
  }

 private:
  // Whether the object is a plain array of the type.
  static bool Is(const py::handle& object, const py::handle& type) {
    if (!py::isinstance<py::array>(object)) return false;
    const auto* proxy = py::detail::array_proxy(object.ptr());
    constexpr int kPlain =
        py::detail::npy_api::NPY_ARRAY_C_CONTIGUOUS_ | py::detail::npy_api::NPY_ARRAY_ALIGNED_;
    return proxy->descr == type.ptr() && (proxy->flags & kPlain) == kPlain;
  }

  static std::span<const std::byte> BytesOf(const py::object& object) {
    const auto array = py::reinterpret_borrow<py::array>(object);
    return {static_cast<const std::byte*>(array.data()), static_cast<std::size_t>(array.nbytes())};
  }

  // The actions as an array of the space's type, shape and layout: mostly as they are.
  py::object Actions(const py::object& actions, int num_envs) const {
    const std::vector<int>& shape = pool.specs().action.shape;
    if (Is(actions, action_type_)) {
      const auto array = py::reinterpret_borrow<py::array>(actions);
      const auto slots = static_cast<py::ssize_t>(pool.specs().agents.size()) * num_envs;
      if (array.ndim() == static_cast<py::ssize_t>(shape.size()) + 1 && array.shape(0) == slots &&
          std::equal(shape.begin(), shape.end(), array.shape() + 1)) {
        return actions;
      }
    }
    return to_actions_(actions, num_envs);
  }

  // Runs `work`, and lets other Python threads run where it takes long enough to be worth it.
  template <typename Call>
  void Work(const Call& work) const {
    constexpr float kWorthReleasing = 20'000;  // nanoseconds
    if (pool.BatchNanoseconds() < kWorthReleasing) return work();
    py::gil_scoped_release release;
    work();
  }

  // A batch of this pool's own without references from elsewhere.
  BatchView& Idle() {
    for (const py::object& object : own_) {
      auto& view = *object.cast<BatchView*>();
      if (!view.provided && !view.InUse()) return view;
    }
    own_.push_back(make_batch_());
    auto& view = *own_.back().cast<BatchView*>();
    view.Settle();
    return view;
  }

  void Provide() {
    BatchView& view = Idle();
    pool.Provide(&view.batch);
    view.provided = true;
    queue_.push_back(&view);
  }

  // The batch that was received, and another in its place.
  py::object Next() {
    BatchView& view = *queue_.front();
    queue_.pop_front();
    py::object timestep = view.timestep;  // held, so that it is not provided anew
    view.provided = false;
    Provide();
    return timestep;
  }

  // Other threads may run Python while a step takes its time; they must not choose memory, or take
  // a batch, meanwhile.
  std::atomic_flag in_use_ = ATOMIC_FLAG_INIT;
  py::object make_batch_, to_actions_, to_ids_, action_type_, id_type_;
  std::vector<py::object> own_;  // BatchViews
  std::shared_ptr<CallablePool> callable_;
  std::deque<BatchView*> queue_;  // those that an asynchronous pool will fill, oldest first

 public:
  Pool pool;  // the last, so that its threads end before the memory goes that they write into
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

double PhysicsRate(const std::string& id, const py::dict& options, int num_envs, int threads,
                   double seconds, int hold) {
  const Options converted = ToOptions(options);
  py::gil_scoped_release release;
  return bench::PhysicsRate(id, converted, {num_envs, threads, seconds, hold});
}

void BindPool(py::module_& module) {
  py::class_<PythonPool>(module, "Pool")
      .def(py::init([](const std::string& id, int num_envs, int batch_size, int threads,
                       const std::vector<int>& cores, const py::dict& options) {
             return std::make_unique<PythonPool>(
                 id, PoolConfig{num_envs, batch_size, threads, cores}, ToOptions(options));
           }),
           py::arg("id"), py::arg("num_envs"), py::arg("batch_size"), py::arg("threads"),
           py::arg("cores"), py::arg("options"))
      .def("bind", &PythonPool::Bind, py::arg("make_batch"), py::arg("to_actions"),
           py::arg("to_ids"))
      .def_property_readonly("specs", [](const PythonPool& p) { return Describe(p.pool.specs()); })
      .def_property_readonly("threads", [](const PythonPool& p) { return p.pool.threads(); })
      .def("reset", &PythonPool::Reset)
      .def("step", &PythonPool::Step)
      .def("callable", &PythonPool::Callable)
      .def("send_reset", &PythonPool::SendReset)
      .def("send", &PythonPool::Send)
      .def("receive", &PythonPool::Receive)
      .def("save", [](PythonPool& p) { return ToBytes(p.pool.Save()); })
      .def("restore", [](PythonPool& p, const py::bytes& state) { p.pool.Restore(ToSpan(state)); })
      .def("inspect", [](PythonPool& p, int env_id) { return p.pool.Inspect(env_id); })
      .def("inject", [](PythonPool& p, int env_id, const std::string& name,
                        const std::vector<double>& values) { p.pool.Inject(env_id, name, values); })
      .def("model", [](PythonPool& p, int env_id) { return ToBytes(p.pool.Model(env_id)); });
}

void BindXla(py::module_& module) {
  py::class_<CallablePool, std::shared_ptr<CallablePool>>(module, "CallablePool")
      .def_property_readonly("handle", &CallablePool::handle)
      .def_property_readonly("last_token", &CallablePool::last_token)
      .def_property_readonly_static("any_token", [](const py::object&) { return kAnyToken; });
  module.def("xla_calls", [] {
    std::map<std::string, py::capsule> calls;
    for (const auto& each : {PoolCalls(), AttentionCalls()}) {
      for (const XlaCall& call : each) calls.emplace(call.name, py::capsule(call.handler));
    }
    return calls;
  });
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  module.doc() = "The C++ core of srl: environment pools.";
  module.def("environment_ids", &EnvironmentIds);
  module.def("physics_rate", &PhysicsRate, py::arg("id"), py::arg("options"), py::arg("num_envs"),
             py::arg("threads"), py::arg("seconds"), py::arg("hold"));
  module.def("load_plugin", &LoadPlugin, py::arg("path"));
  py::class_<BatchView>(module, "Batch")
      .def(py::init<py::object, const py::list&, py::array, py::array, py::array, py::array,
                    py::array, py::array, py::array, py::list>(),
           py::arg("timestep"), py::arg("observation"), py::arg("reward"), py::arg("terminated"),
           py::arg("truncated"), py::arg("episode_return"), py::arg("episode_length"),
           py::arg("statistics"), py::arg("env_id"), py::arg("watched"));
  BindPool(module);
  BindXla(module);
}

}  // namespace srl
