#include "envs/hide_and_seek/task.h"

#include <stdexcept>
#include <utility>

#include "envs/hide_and_seek/fields.h"

namespace srl::hide_and_seek {

std::unique_ptr<Task> MakeTask(const Config& config) {
  switch (config.task) {
    case TaskKind::kHideAndSeek:
      return MakeGame(config);
    case TaskKind::kLockAndReturn:
    case TaskKind::kSequentialLock:
      return MakeLockTask(config);
    case TaskKind::kBlueprint:
      return MakeBlueprint(config);
    case TaskKind::kShelter:
      return MakeShelter(config);
    case TaskKind::kObjectCounting:
      return MakeObjectCounting(config);
  }
  throw std::logic_error("unknown task");
}

std::vector<Field> AllFields(const Config& config, const Task& task) {
  std::vector<Field> fields = WorldFields(config);
  for (Field& field : task.Fields()) fields.push_back(std::move(field));
  return fields;
}

}  // namespace srl::hide_and_seek
