"""Vector environments of others as pools: three autoreset modes, one meaning."""

import re
from functools import partial

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from masked_envs import DISCRETE, MULTI, Masked

from srl import RunError, UserError, make_pool
from srl.core.tree import leaves_of

MODES = list(AutoresetMode)


class Corridor(gymnasium.Env):
    """Starts at a place that its seed chooses once; ends at either end, or after six steps."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Dict(
        place=spaces.Box(-9, 9, (1,)), parts=spaces.Tuple([spaces.Discrete(7), spaces.Box(0, 1)])
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.start = int(self.np_random.integers(-1, 2))
        self.place, self.steps = self.start, 0
        return self.observation(), {}

    def step(self, action):
        self.place, self.steps = self.place + 2 * action - 1, self.steps + 1
        terminated = abs(self.place) == 3
        return self.observation(), self.place + 0.5, terminated, self.steps == 6, {}

    def observation(self):
        part = np.full(1, 0.5 * (self.steps % 3), np.float32)
        return {"place": np.full(1, self.place, np.float32), "parts": (self.steps, part)}


def corridors(num_envs, mode):
    return SyncVectorEnv([Corridor] * num_envs, autoreset_mode=mode)


class Batched(VectorEnv):
    """The same corridor as arrays of JAX, with masks in infos, without autoreset of its own.

    The third action is allowed at even places alone, and does nothing.
    """

    def __init__(self, num_envs, metadata, tensors=False):
        self.num_envs, self.metadata, self.tensors = num_envs, metadata, tensors
        self.single_observation_space = spaces.Box(-9, 9, (1,))
        self.single_action_space = spaces.Discrete(3)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed=None, options=None):
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        if mask.all():
            self.place, self.steps = jnp.zeros(self.num_envs), jnp.zeros(self.num_envs, int)
        self.place = jnp.where(mask, 1.0, self.place)
        self.steps = jnp.where(mask, 0, self.steps)
        return self.given(self.place[:, None]), self.info()

    def step(self, actions):
        even = np.asarray(self.place) % 2 == 0
        assert (even | (actions != 2)).all(), "a forbidden action"
        self.place = self.place + jnp.where(actions == 2, 0.0, 2.0 * actions - 1)
        self.steps = self.steps + 1
        reward, last = self.place + 0.5, self.place[:, None]
        terminated, truncated = jnp.abs(self.place) >= 3, self.steps >= 6
        ended = terminated | truncated
        info = {}
        if self.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP and ended.any():
            info = {"final_obs": self.given(last), "_final_obs": ended}
            self.place = jnp.where(ended, 1.0, self.place)
            self.steps = jnp.where(ended, 0, self.steps)
        results = self.place[:, None], reward, terminated, truncated
        return (*map(self.given, results), {**self.info(), **info})

    def info(self):
        masks = np.ones((self.num_envs, 3), np.int8)
        masks[:, 2] = np.asarray(self.place) % 2 == 0
        return {"action_mask": masks, "_action_mask": np.ones(self.num_envs, bool)}

    def given(self, array):
        return Tensor(array) if self.tensors else array


class Tensor:
    """An array that, like a tensor on a GPU, becomes one of NumPy only through the host."""

    def __init__(self, array):
        self.array = array

    def detach(self):
        return self

    def cpu(self):
        return np.asarray(self.array)

    def __array__(self, *_):
        raise TypeError("it is on a device")


def batched(num_envs, mode=AutoresetMode.SAME_STEP, tensors=False):
    return Batched(num_envs, {"autoreset_mode": mode}, tensors)


def played(env, steps=60, num_envs=5, seed=3, **options):
    """Copies of all timesteps of a pool, with actions that depend on nothing but the slot."""
    rng = np.random.default_rng(seed)
    with make_pool(env, num_envs, **options) as pool:
        timesteps = [pool.reset(seed=seed)]
        for _ in range(steps):
            mask = timesteps[-1].observation
            mask = mask["action_mask"] if "action_mask" in mask else np.ones((num_envs, 2))
            actions = np.array([rng.choice(np.flatnonzero(row)) for row in mask])
            timesteps.append(pool.step(actions))
        return timesteps


def assert_same(one, other):
    for a, b in zip(leaves_of(tuple(one)), leaves_of(tuple(other)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("mode", MODES)
def test_every_autoreset_mode_gives_the_timesteps_of_one_environment_at_a_time(mode):
    """Observations, rewards, ends, returns and lengths; true last and first rows."""
    timesteps = played(corridors, mode=mode)
    ends = np.stack([t.terminated | t.truncated for t in timesteps])
    assert np.stack([t.truncated for t in timesteps]).any()
    assert ends.sum() > 30
    assert not np.stack([t.reward for t in timesteps])[1:][ends[:-1]].any()
    for one, other in zip(played(Corridor), timesteps, strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("tensors", [False, True], ids=["arrays", "tensors"])
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_arrays_and_tensors_with_masks_become_rows(mode, tensors):
    timesteps = played(partial(batched, mode=mode, tensors=tensors))
    lengths = [t.episode_length[t.terminated | t.truncated] for t in timesteps]
    assert {2, 6} <= set(np.concatenate(lengths).tolist())
    for timestep in timesteps:
        place, mask = timestep.observation["observation"], timestep.observation["action_mask"]
        going = ~(timestep.terminated | timestep.truncated)
        np.testing.assert_array_equal(mask[going, 2], place[going, 0] % 2 == 0)
        assert (place[timestep.episode_length == 0] == 1).all()
        assert (abs(place[timestep.terminated]) == 3).all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("where", ["info", "observation"])
@pytest.mark.parametrize("actions", [DISCRETE, MULTI], ids=["discrete", "multi"])
def test_no_forbidden_action_reaches_an_environment(mode, where, actions):
    def make(num_envs):
        envs = [partial(Masked, actions, where)] * num_envs
        return SyncVectorEnv(envs, autoreset_mode=mode)

    def allowed(timestep):
        mask = timestep.observation["action_mask"]
        parts = [mask] if actions is DISCRETE else [mask[:, :3], mask[:, 3:]]
        chosen = np.stack([part.argmax(1) for part in parts], 1).reshape(3, *actions.shape)
        return (chosen + actions.start).astype(actions.dtype)

    with make_pool(make, 3) as pool:  # the environments assert that their masks are honoured
        row = pool.rows(1)[0]
        pool.reset(seed=0, into=row)
        for late in (1, 2):  # so that episodes end apart from each other
            pool.step(allowed(row.timestep), into=row)
            pool.reset(mask=np.arange(3) == late, into=row)
        lengths = []
        for _ in range(20):
            timestep = pool.step(allowed(row.timestep), into=row)
            lengths.append(timestep.episode_length.tolist())
        assert len({tuple(each) for each in zip(*lengths, strict=True)}) == 3
        assert np.max(lengths) == 5


def test_seeds_are_passed_on_and_give_the_same_episodes_again():
    for one, other in zip(played("vector:CartPole-v1"), played("vector:CartPole-v1"), strict=True):
        assert_same(one, other)
    other = played("vector:CartPole-v1", steps=0, seed=4)[0]
    assert not np.array_equal(other.observation, played("vector:CartPole-v1")[0].observation)
    # Of Gymnasium's own, environment i has the seed plus i, as in other pools.
    make = partial(gymnasium.make, "CartPole-v1")
    sync = played(lambda num_envs: SyncVectorEnv([make] * num_envs), steps=0)[0]
    np.testing.assert_array_equal(sync.observation, played("CartPole-v1", steps=0)[0].observation)


def test_a_reset_with_a_mask_and_batches_through_send_and_recv_work():
    with make_pool(corridors, 3, mode=AutoresetMode.SAME_STEP) as pool:
        rows = pool.rows(1)
        pool.reset(seed=0, into=rows[0])
        pool.step(np.ones(3, int), into=rows[0])
        pool.reset(mask=np.array([False, True, False]), into=rows[0])
        assert rows[0].timestep.episode_length.tolist() == [1, 0, 1]
        pool.async_reset(seed=0)
        first = pool.recv()
        assert first.episode_length.tolist() == [0, 0, 0]
        pool.send(np.ones(1, int), np.array([2]))
        with pytest.raises(UserError, match="needs 3 environments in flight, but only 1"):
            pool.recv()
        pool.send(np.zeros(2, int), np.array([0, 1]))
        second = pool.recv().observation["place"] - first.observation["place"]
        assert second[:, 0].tolist() == [-1, -1, 1]


class OnlyBatched(Batched):
    """Registered without an entry point of single environments."""

    def __init__(self, num_envs, mode="SameStep"):
        super().__init__(num_envs, {"autoreset_mode": AutoresetMode(mode)})


gymnasium.register("OnlyBatched-v0", vector_entry_point=OnlyBatched)


def test_an_id_of_a_vector_environment_alone_is_recognised():
    for timestep in (played("OnlyBatched-v0")[7], played("vector:OnlyBatched-v0")[7]):
        assert_same(timestep, played(OnlyBatched)[7])
    with pytest.raises(UserError, match=r"OnlyBatched-v0 has no option 'mod'; did you mean mode\?"):
        make_pool("OnlyBatched-v0", 2, mod="NextStep")


def without(name):
    def make(num_envs):
        env = batched(num_envs)
        step = env.step

        def stripped(actions):
            *results, info = step(actions)
            return *results, {key: value for key, value in info.items() if key != name}

        env.step = stripped
        return env

    return make


def misnamed(num_envs):
    env = batched(num_envs)
    step = env.step
    env.reset(seed=0)
    env.step = lambda actions: step(actions)
    env.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
    made = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    twin = Batched(num_envs, env.metadata)
    twin.metadata = made
    twin.step, twin.reset = env.step, env.reset
    return twin


def deaf(num_envs):
    """Resets all, whatever the mask."""
    env = batched(num_envs)
    reset = env.reset
    env.reset = lambda seed=None, options=None: reset(seed=seed)
    return env


@pytest.mark.parametrize(
    ("env", "error", "text"),
    [
        (without("final_obs"), RunError, "gave no info['final_obs'] where an episode ended"),
        (misnamed, RunError, "which only resets by the autoreset mode NextStep"),
        (deaf, RunError, "let it honour the mask, or make it with the mode NextStep"),
        (lambda num_envs: Batched(num_envs, {}), UserError, "expected the one that it follows"),
        (lambda num_envs: Corridor(), UserError, "made Corridor; expected a gymnasium.vector"),
        (lambda num_envs: batched(num_envs + 1), UserError, "asked for 5 environments and made 6"),
        ("vector:CartPole-v9", UserError, "CartPole"),
        ("vector:FrozenLake-v1", UserError, "is registered without a vector_entry_point"),
    ],
)
def test_what_does_not_keep_the_interface_is_named(env, error, text):
    with pytest.raises(error, match=re.escape(text)):
        played(env)


@pytest.mark.parametrize("given", [{"workers": 2}, {"batch_size": 1}, {"action_repeat": 2}])
def test_settings_that_would_do_nothing_are_refused(given):
    make_pool("vector:CartPole-v1", 2, workers=0).close()  # which is what it does
    with pytest.raises(UserError, match="steps all its environments at once"):
        make_pool("vector:CartPole-v1", 2, **given)
