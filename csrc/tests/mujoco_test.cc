#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bench/physics.h"
#include "envs/mujoco/engine.h"
#include "envs/mujoco/model.h"
#include "pool/pool.h"
#include "srl/environment.h"
#include "tests/check.h"

namespace srl {
namespace {

// A box with a leg, on a plane.
constexpr const char* kModel = R"(
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <geom type="plane" size="9 9 1"/>
    <body pos="0 0 1">
      <joint type="slide" axis="1 0 0"/>
      <joint type="slide" axis="0 0 1" ref="1"/>
      <joint type="hinge" axis="0 1 0"/>
      <geom type="box" size=".2 .2 .2"/>
      <body pos="0 0 -.2">
        <joint name="hip" type="hinge" axis="0 1 0" frictionloss=".01"/>
        <geom type="capsule" fromto="0 0 0 0 0 -.4" size=".05"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="hip" gear="20" ctrllimited="true" ctrlrange="-1 1"/></actuator>
</mujoco>)";

class ModelFile {
 public:
  ModelFile() {
    std::array<char, 32> name = {"/tmp/srl_model_XXXXXX"};
    close(mkstemp(name.data()));
    path_ = name.data();
    std::ofstream(path_) << kModel;
  }
  ~ModelFile() { std::filesystem::remove(path_); }

  const std::string& path() const { return path_; }
  Options options() const {
    return Options({{"xml_file", path_}, {"terminate_when_unhealthy", false}});
  }
  std::unique_ptr<Environment> Make() const { return Registry().at("Hopper-v5").make(options()); }

 private:
  std::string path_;
};

void Swing(Environment* environment, Random* random) {
  const auto action = static_cast<float>(random->Uniform(-1.0, 1.0));
  environment->Step(reinterpret_cast<const std::byte*>(&action), *random);
}

using Numbers = std::map<std::string, std::vector<double>>;

Numbers PlayAlone(const ModelFile& file, std::uint64_t seed) {
  const auto environment = file.Make();
  Random random(seed);
  environment->Reset(random);
  for (int i = 0; i < 200; ++i) Swing(environment.get(), &random);
  return environment->Inspect();
}

TEST(EnvironmentsThatShareAThreadDoNotDisturbEachOther) {
  const ModelFile file;
  const auto one = file.Make();
  const auto two = file.Make();
  Random first(1);
  Random second(2);
  one->Reset(first);
  two->Reset(second);
  for (int i = 0; i < 200; ++i) {
    Swing(one.get(), &first);
    Swing(two.get(), &second);
  }
  CHECK(one->Inspect() == PlayAlone(file, 1));
  CHECK(two->Inspect() == PlayAlone(file, 2));
  CHECK(one->Inspect() != two->Inspect());
}

TEST(AnEnvironmentMayMoveFromThreadToThread) {
  const ModelFile file;
  const auto environment = file.Make();
  Random random(1);
  environment->Reset(random);
  for (int i = 0; i < 20; ++i) {
    std::thread([&] {
      for (int j = 0; j < 10; ++j) Swing(environment.get(), &random);
    }).join();
  }
  CHECK(environment->Inspect() == PlayAlone(file, 1));
}

TEST(ManyEnvironmentsOfOnePoolStepOnSeveralThreads) {
  const ModelFile file;
  constexpr int kEnvs = 64;
  std::vector<float> observation(kEnvs * 7), reward(kEnvs), episode_return(kEnvs);
  std::vector<float> statistics(kEnvs * 5);
  std::vector<std::int32_t> length(kEnvs), id(kEnvs);
  const auto terminated = std::make_unique<bool[]>(kEnvs);
  const auto truncated = std::make_unique<bool[]>(kEnvs);
  const auto play = [&](int threads) {
    Pool pool("Hopper-v5", kEnvs, kEnvs, threads, file.options());
    CHECK(pool.specs().observation[0].space.Elements() == 7);
    CHECK(pool.specs().statistics.size() == 5);
    Batch batch{{reinterpret_cast<std::byte*>(observation.data())},
                reward.data(),
                terminated.get(),
                truncated.get(),
                episode_return.data(),
                length.data(),
                statistics.data(),
                id.data()};
    pool.Reset(3, &batch);
    const std::vector<float> actions(kEnvs, 0.5f);
    for (int i = 0; i < 50; ++i) pool.Step(std::as_bytes(std::span(actions)), &batch);
    return observation;
  };
  CHECK(play(1) == play(4));
}

TEST(AModelIsCompiledOnceForAllThatHoldIt) {
  const ModelFile file;
  const auto held = mujoco::Model::Load(file.path());
  CHECK(mujoco::Model::Load(file.path()) == held);
  mjData* other = nullptr;
  std::thread([&] { other = held->ThreadData(); }).join();
  CHECK(held->ThreadData() == held->ThreadData());
  CHECK(held->ThreadData() != other);
}

TEST(BarePhysicsRunsOnAnyNumberOfThreads) {
  const ModelFile file;
  for (int threads : {0, 1, 3}) {
    CHECK(bench::PhysicsRate("Hopper-v5", file.options(), {8, threads, 0.01}) > 0.0);
  }
}

// Falls onto the plane: contacts and constraints come and go.
TEST(DataThatForgetsItsArenaMovesOnAsBefore) {
  const ModelFile file;
  const auto held = mujoco::Model::Load(file.path());
  const mjModel* model = held->get();
  const mujoco::DataPointer other = held->MakeData();
  const mujoco::DataPointer forgetful = held->MakeData();
  int contacts = 0;
  for (int i = 0; i < 200; ++i) {
    mj_step(model, other.get());
    mj_step(model, forgetful.get());
    contacts += forgetful->ncon;
    CHECK(forgetful->nf == 1);
    mujoco::ForgetArena(forgetful.get());
    CHECK(forgetful->nf == 0 && forgetful->nefc == 0);
    const mujoco::DataPointer copy(mj_copyData(nullptr, model, forgetful.get()));
    CHECK(std::equal(copy->qpos, copy->qpos + model->nq, other->qpos));
    CHECK(std::equal(copy->qvel, copy->qvel + model->nv, other->qvel));
  }
  CHECK(contacts > 0);
}

TEST(NothingOfAStepThatFailedIsLeftInAForgottenArena) {
  const ModelFile file;
  const auto held = mujoco::Model::Load(file.path());
  const mujoco::DataPointer other = held->MakeData();
  const mujoco::DataPointer failed = held->MakeData();
  mj_markStack(failed.get());
  mj_stackAllocNum(failed.get(), 100);
  mujoco::ForgetArena(failed.get());
  mj_step(held->get(), failed.get());
  mj_step(held->get(), other.get());
  CHECK(std::equal(failed->qpos, failed->qpos + held->get()->nq, other->qpos));
  CHECK(failed->pstack == 0);
}

TEST(NormalNumbersHaveMeanZeroAndVarianceOne) {
  Random random(1);
  double sum = 0.0;
  double squares = 0.0;
  constexpr int kCount = 100'000;
  for (int i = 0; i < kCount; ++i) {
    const double number = random.Normal();
    CHECK(std::isfinite(number));
    sum += number;
    squares += number * number;
  }
  CHECK(std::abs(sum / kCount) < 0.02);
  CHECK(std::abs(squares / kCount - 1.0) < 0.03);
}

}  // namespace
}  // namespace srl
