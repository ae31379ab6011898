#include "pool/pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/check.h"

namespace srl {
namespace {

// Counts its steps and is bad at a chosen one: it throws, or gives a reward that is no number.
class Faulty : public Environment {
 public:
  static Specs MakeSpecs(const Options& options) {
    options.RefuseUnknown({"throws", "nan"});
    return {.agents = {"agent"},
            .observation = {{"", Space::Box(DType::kFloat32, {1}, {0}, {1e9})}},
            .action = Space::Discrete(2),
            .statistics = {},
            .max_episode_steps = 0};
  }
  explicit Faulty(const Options& options)
      : throws_(options.Get("throws", 0)), nan_(options.Get("nan", 0)) {}
  void Reset(Random&) override { steps_ = 0; }
  void Step(const std::byte*, Random&) override {
    if (++steps_ == throws_) throw std::runtime_error("out of coffee");
  }
  void Write(const Rows& rows) const override {
    *rows.Observation<float>() = static_cast<float>(steps_);
    *rows.reward = steps_ == nan_ && nan_ > 0 ? NAN : 0.0f;
    *rows.terminated = *rows.truncated = false;
  }
  void Serialize(Archive& archive) override { archive.Value(steps_); }

 private:
  int throws_, nan_;
  int steps_ = 0;
};

SRL_REGISTER_ENVIRONMENT("Faulty-v0", Faulty);

// The third of three takes longest, the first is done at once; knows which began last.
class Slow : public Environment {
 public:
  static inline std::atomic<int> made = 0;
  static inline std::atomic<int> last = -1;

  static Specs MakeSpecs(const Options& options) {
    options.RefuseUnknown({});
    return Faulty::MakeSpecs(options);
  }
  explicit Slow(const Options&) : number_(made++ % 3) {}
  void Reset(Random&) override {}
  void Step(const std::byte*, Random&) override {
    last = number_;
    std::this_thread::sleep_for(number_ * std::chrono::microseconds(500));
  }
  void Write(const Rows& rows) const override {
    *rows.Observation<float>() = *rows.reward = 0.0f;
    *rows.terminated = *rows.truncated = false;
  }
  void Serialize(Archive&) override {}

 private:
  int number_;
};

SRL_REGISTER_ENVIRONMENT("Slow-v0", Slow);

// A batch with memory of its own.
class OwnedBatch {
 public:
  OwnedBatch(const Specs& specs, int rows) {
    const std::size_t envs = static_cast<std::size_t>(rows);
    const std::size_t slots = envs * specs.agents.size();
    for (const Field& field : specs.observation) {
      fields_.emplace_back(slots * field.space.Bytes());
      batch.observation.push_back(fields_.back().data());
    }
    reward.resize(slots);
    returns_.resize(slots);
    terminated_ = std::make_unique<bool[]>(slots);
    truncated_ = std::make_unique<bool[]>(slots);
    length.resize(envs);
    statistics_.resize(envs * specs.statistics.size());
    env_id.resize(envs);
    batch.reward = reward.data();
    batch.terminated = terminated_.get();
    batch.truncated = truncated_.get();
    batch.episode_return = returns_.data();
    batch.episode_length = length.data();
    batch.statistics = statistics_.data();
    batch.env_id = env_id.data();
  }

  // Everything that was written, as bytes.
  std::vector<std::byte> Bytes() const {
    std::vector<std::byte> all;
    const auto append = [&all](const void* data, std::size_t size) {
      const auto* first = static_cast<const std::byte*>(data);
      all.insert(all.end(), first, first + size);
    };
    for (const auto& field : fields_) append(field.data(), field.size());
    append(reward.data(), reward.size() * sizeof(float));
    append(returns_.data(), returns_.size() * sizeof(float));
    append(terminated_.get(), reward.size());
    append(truncated_.get(), reward.size());
    append(length.data(), length.size() * sizeof(std::int32_t));
    append(statistics_.data(), statistics_.size() * sizeof(float));
    return all;
  }

  Batch batch;
  std::vector<float> reward;
  std::vector<std::int32_t> length;
  std::vector<std::int32_t> env_id;

 private:
  std::vector<std::vector<std::byte>> fields_;
  std::vector<float> returns_, statistics_;
  std::unique_ptr<bool[]> terminated_, truncated_;
};

std::vector<std::byte> RandomActions(const Specs& specs, int num_envs, Random& random) {
  const std::size_t elements = specs.action.Elements() * specs.agents.size();
  std::vector<std::int32_t> values(elements * static_cast<std::size_t>(num_envs));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = random.Integer(0, specs.action.nvec[i % specs.action.nvec.size()] - 1);
  }
  std::vector<std::byte> bytes(values.size() * sizeof(std::int32_t));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// All that a synchronous pool writes in `steps` random steps.
std::vector<std::byte> Rollout(const std::string& id, int num_envs, int threads, int steps) {
  Pool pool(id, num_envs, num_envs, threads, Options());
  OwnedBatch out(pool.specs(), num_envs);
  Random random(1);
  pool.Reset(5, &out.batch);
  std::vector<std::byte> all = out.Bytes();
  for (int t = 0; t < steps; ++t) {
    pool.Step(RandomActions(pool.specs(), num_envs, random), &out.batch);
    const std::vector<std::byte> bytes = out.Bytes();
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

TEST(TrajectoriesAreTheSameAtAnyThreadCount) {
  const auto one = Rollout("CartPole-v1", 300, 1, 200);
  for (int threads : {2, 8}) CHECK(Rollout("CartPole-v1", 300, threads, 200) == one);
  const auto game = Rollout("HideAndSeek-v1", 6, 1, 100);
  for (int threads : {2, 5}) CHECK(Rollout("HideAndSeek-v1", 6, threads, 100) == game);
}

TEST(SynchronousStepsBeginWithTheLongest) {
  Pool pool("Slow-v0", 3, 3, 2, Options());
  OwnedBatch batch(pool.specs(), 3);
  pool.Reset(0, &batch.batch);
  Random random(1);
  int shortest_last = 0;
  for (int i = 0; i < 50; ++i) {
    pool.Step(RandomActions(pool.specs(), 3, random), &batch.batch);
    shortest_last += Slow::last == 0;
  }
  CHECK(shortest_last > 25);  // a busy machine may upset some
}

TEST(ARestoredPoolHasTheSameFuture) {
  for (const char* id : {"CartPole-v1", "HideAndSeek-v1"}) {
    Pool pool(id, 4, 4, 2, Options());
    Pool other(id, 4, 4, 1, Options());
    OwnedBatch out(pool.specs(), 4), copy(pool.specs(), 4);
    Random random(2);
    pool.Reset(3, &out.batch);
    for (int t = 0; t < 45; ++t) pool.Step(RandomActions(pool.specs(), 4, random), &out.batch);
    other.Restore(pool.Save());
    for (int t = 0; t < 60; ++t) {
      const auto actions = RandomActions(pool.specs(), 4, random);
      pool.Step(actions, &out.batch);
      other.Step(actions, &copy.batch);
      CHECK(out.Bytes() == copy.Bytes());
    }
  }
}

TEST(EnvironmentIHasTheSeedPlusI) {
  Pool all("CartPole-v1", 4, 4, 1, Options());
  Pool third("CartPole-v1", 1, 1, 1, Options());
  OwnedBatch out(all.specs(), 4), one(third.specs(), 1);
  all.Reset(10, &out.batch);
  third.Reset(12, &one.batch);
  CHECK(std::memcmp(out.batch.observation[0] + 2 * 16, one.batch.observation[0], 16) == 0);
}

TEST(TheStepAfterAnEndIgnoresTheActionAndStartsAnEpisode) {
  Pool pool("CartPole-v1", 1, 1, 1, Options());
  OwnedBatch out(pool.specs(), 1);
  pool.Reset(0, &out.batch);
  const std::vector<std::int32_t> right = {1};
  const auto action = std::as_bytes(std::span(right));
  int steps = 0;
  do {
    pool.Step(action, &out.batch);
    ++steps;
  } while (!out.batch.terminated[0]);
  CHECK(out.length[0] == steps);
  CHECK(out.batch.episode_return[0] == static_cast<float>(steps));
  pool.Step(action, &out.batch);
  CHECK(!out.batch.terminated[0]);
  CHECK(out.length[0] == 0 && out.reward[0] == 0 && out.batch.episode_return[0] == 0);
  const float* observation = reinterpret_cast<const float*>(out.batch.observation[0]);
  CHECK(std::all_of(observation, observation + 4, [](float x) { return std::abs(x) <= 0.05f; }));
}

// An asynchronous pool with the memory it needs.
struct AsynchronousPool {
  AsynchronousPool(const std::string& id, int num_envs, int batch_size, int threads,
                   const Options& options = Options())
      : pool(id, num_envs, batch_size, threads, options) {
    for (int i = 0; i < pool.ProvisionNeeded(); ++i) {
      batches.push_back(std::make_unique<OwnedBatch>(pool.specs(), batch_size));
      pool.Provide(&batches.back()->batch);
    }
  }

  std::vector<std::unique_ptr<OwnedBatch>> batches;  // outlive the pool, which may be at work
  Pool pool;
};

std::vector<std::byte> Constant(int count, std::int32_t action) {
  const std::vector<std::int32_t> values(static_cast<std::size_t>(count), action);
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// The first coordinate of CartPole's observation after every step, for each environment, when
// environment i always does i % 2.
using Paths = std::vector<std::vector<float>>;

Paths SynchronousPaths(int num_envs, int steps) {
  Pool pool("CartPole-v1", num_envs, num_envs, 1, Options());
  OwnedBatch out(pool.specs(), num_envs);
  std::vector<std::int32_t> values;
  for (int i = 0; i < num_envs; ++i) values.push_back(i % 2);
  Paths paths(static_cast<std::size_t>(num_envs));
  pool.Reset(7, &out.batch);
  for (int t = 0; t < steps; ++t) {
    const auto* observation = reinterpret_cast<const float*>(out.batch.observation[0]);
    for (std::size_t i = 0; i < paths.size(); ++i) paths[i].push_back(observation[4 * i]);
    pool.Step(std::as_bytes(std::span(values)), &out.batch);
  }
  return paths;
}

TEST(AsynchronousUseGivesTheSameTrajectories) {
  constexpr int kEnvs = 10, kSteps = 120;
  const Paths expected = SynchronousPaths(kEnvs, kSteps);
  for (int threads : {1, 3}) {
    for (int batch_size : {1, 4, kEnvs}) {
      AsynchronousPool use("CartPole-v1", kEnvs, batch_size, threads);
      use.pool.SendReset(3);
      for (int restart = 0; restart < 2; ++restart) use.pool.SendReset(7);  // drops the others
      Paths paths(kEnvs);
      int complete = 0;
      while (complete < kEnvs) {
        Batch* batch = use.pool.Receive();
        std::vector<int> ids(batch->env_id, batch->env_id + batch_size);
        std::vector<std::int32_t> actions;
        const auto* observation = reinterpret_cast<const float*>(batch->observation[0]);
        for (std::size_t row = 0; row < ids.size(); ++row) {
          auto& path = paths[static_cast<std::size_t>(ids[row])];
          path.push_back(observation[4 * row]);
          complete += path.size() == kSteps;
          actions.push_back(ids[row] % 2);
        }
        use.pool.Provide(batch);
        use.pool.Send(std::as_bytes(std::span(actions)), ids);
      }
      for (std::size_t i = 0; i < paths.size(); ++i) {
        paths[i].resize(kSteps);
        CHECK(paths[i] == expected[i]);
      }
    }
  }
}

TEST(OneThreadServesSlowEnvironmentsAsynchronously) {
  AsynchronousPool use("HideAndSeek-v1", 2, 2, 1);
  use.pool.SendReset(0);
  Random random(1);
  for (int i = 0; i < 5; ++i) {
    Batch* batch = use.pool.Receive();
    const std::vector<int> ids(batch->env_id, batch->env_id + 2);
    use.pool.Provide(batch);
    use.pool.Send(RandomActions(use.pool.specs(), 2, random), ids);
  }
  use.pool.SendReset(1);
  CHECK(use.pool.Receive()->episode_length[0] == 0);
}

TEST(StepsMayFollowReceivedBatches) {
  AsynchronousPool use("CartPole-v1", 3, 3, 1);
  OwnedBatch out(use.pool.specs(), 3);
  use.pool.SendReset(0);
  use.pool.Provide(use.pool.Receive());
  use.pool.Step(Constant(3, 0), &out.batch);
  CHECK(out.length[0] == 1);
  use.pool.Send(Constant(3, 0), std::vector<int>{0, 1, 2});
  CHECK(use.pool.Receive()->episode_length[0] == 2);
}

template <typename Call>
std::string ErrorOf(Call call) {
  try {
    call();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(AFaultyEnvironmentIsNamedAndThePoolGoesOn) {
  for (const char* fault : {"throws", "nan"}) {
    Pool pool("Faulty-v0", 3, 3, 1, Options({{fault, std::int64_t{2}}}));
    OwnedBatch out(pool.specs(), 3);
    pool.Reset(0, &out.batch);
    pool.Step(Constant(3, 0), &out.batch);
    const std::string error = ErrorOf([&] { pool.Step(Constant(3, 0), &out.batch); });
    CHECK(error.starts_with("environment 0: "));
    CHECK(error.find(fault == std::string("nan") ? "not finite as reward" : "coffee") !=
          std::string::npos);
    pool.Step(Constant(3, 0), &out.batch);  // resets
    CHECK(out.length[0] == 0);
  }
}

TEST(AFaultIsReportedWithItsOwnBatchWhichLosesNoOtherRow) {
  AsynchronousPool use("Faulty-v0", 4, 2, 1, Options({{"throws", std::int64_t{2}}}));
  use.pool.SendReset(0);
  std::vector<int> ids[2];
  for (auto& batch_ids : ids) {
    Batch* batch = use.pool.Receive();
    batch_ids.assign(batch->env_id, batch->env_id + 2);
    use.pool.Provide(batch);
  }
  const auto exchange = [&](const std::vector<int>& sent) {
    use.pool.Send(Constant(2, 0), sent);
    return use.pool.Receive();
  };
  use.pool.Provide(exchange(ids[0]));  // their first step; the second fails
  use.pool.Send(Constant(2, 0), ids[1]);
  use.pool.Send(Constant(2, 0), ids[0]);
  Batch* good = use.pool.Receive();  // of those whose first step it is, whatever the others do
  CHECK(good->episode_length[0] == 1 && good->episode_length[1] == 1);
  use.pool.Provide(good);
  const std::string error = ErrorOf([&] { use.pool.Receive(); });
  CHECK(error.find("coffee") != std::string::npos);
  Batch* fresh = use.pool.Receive();
  CHECK(std::is_permutation(fresh->env_id, fresh->env_id + 2, ids[0].begin()));
  CHECK(fresh->episode_length[0] == 0 && fresh->episode_length[1] == 0);
}

template <typename Call>
bool IsInvalid(Call call) {
  try {
    call();
  } catch (const std::invalid_argument&) {
    return true;
  }
  return false;
}

TEST(WrongCallsThrowAndChangeNothing) {
  Pool pool("CartPole-v1", 2, 2, 1, Options());
  OwnedBatch out(pool.specs(), 2);
  const std::vector<std::int32_t> good = {0, 1}, bad = {0, 2}, few = {0};
  const auto step = [&](const std::vector<std::int32_t>& actions) {
    pool.Step(std::as_bytes(std::span(actions)), &out.batch);
  };
  CHECK(IsInvalid([&] { step(good); }));  // before a reset
  pool.Reset(0, &out.batch);
  CHECK(IsInvalid([&] { step(bad); }));
  CHECK(IsInvalid([&] { step(few); }));
  CHECK(IsInvalid([&] { pool.Receive(); }));
  step(good);
  CHECK(out.length[0] == 1);
  CHECK(IsInvalid([] { Pool("NoSuch-v0", 1, 1, 1, Options()); }));
  CHECK(IsInvalid([] { Pool("CartPole-v1", 0, 0, 1, Options()); }));
  CHECK(IsInvalid([] { Pool("CartPole-v1", 2, 3, 1, Options()); }));
  CHECK(IsInvalid([&] { pool.Restore(std::vector<std::byte>(7)); }));
  CHECK(IsInvalid([&] { pool.SendReset(0); }));  // no memory was provided

  Pool asynchronous("CartPole-v1", 4, 2, 1, Options());
  OwnedBatch first(pool.specs(), 2), second(pool.specs(), 2), third(pool.specs(), 2);
  asynchronous.Provide(&first.batch);
  CHECK(IsInvalid([&] { asynchronous.SendReset(0); }));  // too little memory
  asynchronous.Provide(&second.batch);
  asynchronous.SendReset(0);
  asynchronous.Receive();
  const int id = first.env_id[0];
  const auto actions = std::as_bytes(std::span(good));
  CHECK(IsInvalid([&] { asynchronous.Send(actions, std::vector<int>{id, id}); }));
  CHECK(IsInvalid([&] { asynchronous.Send(actions, std::vector<int>{id, 4}); }));
  CHECK(IsInvalid([&] { asynchronous.Send(actions, std::vector<int>{id, second.env_id[0]}); }));
  asynchronous.Receive();
  CHECK(IsInvalid([&] { asynchronous.Receive(); }));
}

}  // namespace
}  // namespace srl
