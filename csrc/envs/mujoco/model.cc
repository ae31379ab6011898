#include "envs/mujoco/model.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <utility>

namespace srl::mujoco {
namespace {

std::uint64_t NextSerial() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

// Of several lines, one.
std::string Line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// When a model's file, or a file next to it that it may include, was last written.
std::filesystem::file_time_type LastWritten(const std::string& file) {
  std::error_code missing;  // left for MuJoCo to tell
  auto newest = std::filesystem::last_write_time(file, missing);
  const auto folder = std::filesystem::absolute(file, missing).parent_path();
  for (const auto& entry : std::filesystem::directory_iterator(folder, missing)) {
    const auto written = entry.last_write_time(missing);
    if (!missing) newest = std::max(newest, written);
  }
  return newest;
}

}  // namespace

std::shared_ptr<const Model> Model::Load(const std::string& file) {
  using Time = std::filesystem::file_time_type;
  static std::mutex mutex;
  static std::map<std::pair<std::string, Time>, std::weak_ptr<const Model>> loaded;
  static std::shared_ptr<const Model> latest;  // specs are asked for before environments are made
  static std::pair<std::string, Time> of_latest;
  std::error_code missing;
  const std::pair<std::string, Time> given{file, std::filesystem::last_write_time(file, missing)};
  const std::lock_guard lock(mutex);
  // A pool makes thousands of environments: while they hold it, one look at the folder is enough.
  if (latest.use_count() > 1 && given == of_latest) return latest;
  of_latest = given;
  std::weak_ptr<const Model>& known = loaded[{file, LastWritten(file)}];
  latest = known.lock();
  if (!latest) {
    latest.reset(new Model(file));
    known = latest;
  }
  return latest;
}

Model::Model(const std::string& file) : serial_(NextSerial()) {
  ThrowErrors();
  std::array<char, 1024> error = {};
  model_.reset(mj_loadXML(file.c_str(), nullptr, error.data(), error.size()));
  if (!model_) {
    throw std::invalid_argument("xml_file '" + file + "' cannot be loaded: " + Line(error.data()));
  }
  if (model_->opt.enableflags & (mjENBL_SLEEP | mjENBL_IPC)) {
    throw std::invalid_argument("xml_file '" + file +
                                "' enables sleep or ipc, whose state cannot be kept apart for "
                                "each environment; remove that flag");
  }
}

DataPointer Model::MakeData() const {
  DataPointer data(mj_makeData(get()));
  if (!data) throw std::bad_alloc();
  return data;
}

mjData* Model::ThreadData() const {
  struct Latest {
    std::uint64_t serial = 0;
    mjData* data = nullptr;
  };
  static thread_local Latest latest;
  if (latest.serial != serial_) {
    const std::lock_guard lock(mutex_);
    DataPointer& data = data_[std::this_thread::get_id()];
    if (!data) data = MakeData();
    latest = {serial_, data.get()};
  }
  // An error that was thrown in the midst of MuJoCo's work has left its stack raised.
  if (latest.data->pstack > 0) mj_resetData(get(), latest.data);
  return latest.data;
}

std::vector<std::byte> Model::Saved() const {
  std::vector<std::byte> bytes(static_cast<std::size_t>(mj_sizeModel(get())));
  mj_saveModel(get(), nullptr, bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

}  // namespace srl::mujoco
