// A pool's whole state, and the state of one environment.

#include <stdexcept>

#include "pool/call_guard.h"
#include "pool/pool.h"

namespace srl {
namespace {

constexpr std::uint64_t kMagic = 0x33306c6f6f506c73;  // "slPool03"

}  // namespace

void Pool::SerializeOne(int env_id, Archive& archive) {
  stepper_->SerializeRandom(env_id, archive);
  auto phase = static_cast<std::uint8_t>(PhaseOf(env_id));
  archive.Value(phase);
  if (phase > static_cast<std::uint8_t>(Phase::kReceived)) {  // a saved pool is idle
    throw std::runtime_error("the saved environment state is damaged");
  }
  PhaseOf(env_id) = static_cast<Phase>(phase);
  stepper_->SerializeEpisode(env_id, archive);
}

std::vector<std::byte> Pool::Save() {
  const CallGuard guard(&in_use_);
  CheckIdle("save");
  std::vector<std::byte> state;
  Archive archive(&state);
  std::uint64_t magic = kMagic;
  int num_envs = num_envs_;
  std::vector<char> identity(identity_.begin(), identity_.end());
  archive.Value(magic);
  archive.Vector(identity);
  archive.Value(num_envs);
  for (int id : all_ids_) {
    // Each environment's bytes go with their length, so that a restore can check before it acts.
    std::vector<std::byte> own;
    Archive environment(&own);
    SerializeOne(id, environment);
    archive.Vector(own);
  }
  return state;
}

void Pool::Restore(std::span<const std::byte> state) {
  const CallGuard guard(&in_use_);
  CheckIdle("restore");
  Archive archive(state);
  std::uint64_t magic = 0;
  int num_envs = 0;
  std::vector<char> identity;
  std::vector<std::vector<std::byte>> parts(all_ids_.size());
  try {
    archive.Value(magic);
    if (magic != kMagic) {
      throw std::invalid_argument("these bytes are no saved pool, or of another version of srl");
    }
    archive.Vector(identity);
    if (const std::string other(identity.begin(), identity.end()); other != identity_) {
      throw std::invalid_argument("the saved pool is of " + other + ", this one of " + identity_);
    }
    archive.Value(num_envs);
    if (num_envs != num_envs_) {
      throw std::invalid_argument("the saved pool has " + std::to_string(num_envs) +
                                  " environments, this one " + std::to_string(num_envs_));
    }
    for (auto& part : parts) archive.Vector(part);
  } catch (const std::runtime_error& error) {
    throw std::invalid_argument(error.what());
  }
  for (int id : all_ids_) {
    Archive environment{std::span<const std::byte>(parts[static_cast<std::size_t>(id)])};
    SerializeOne(id, environment);
    if (environment.remaining() > 0) {
      throw std::runtime_error("environment " + std::to_string(id) +
                               ": the saved state is too long");
    }
  }
}

std::map<std::string, std::vector<double>> Pool::Inspect(int env_id) const {
  const CallGuard guard(&in_use_);
  CheckEnvId(env_id);
  CheckIdle("inspect");
  return stepper_->environments().Inspect(env_id);
}

void Pool::Inject(int env_id, const std::string& name, const std::vector<double>& values) {
  const CallGuard guard(&in_use_);
  CheckEnvId(env_id);
  CheckIdle("inject");
  stepper_->environments().Inject(env_id, name, values);
}

std::vector<std::byte> Pool::Model(int env_id) const {
  const CallGuard guard(&in_use_);
  CheckEnvId(env_id);
  CheckIdle("model");
  return stepper_->environments().Model(env_id);
}

}  // namespace srl
