"""A good environment, and others that break one promise each."""

import ctypes
import os
import threading

import gymnasium
import numpy as np
from gymnasium import spaces


class Good(gymnasium.Env):
    """A walk by chance that ends at the border."""

    observation_space = spaces.Box(-10, 10, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.place.copy(), {}

    def step(self, action):
        push = (1 if action else -1) * np.array([0.5, 0.1], np.float32)
        self.place = self.place + push + self.np_random.normal(0, 0.1, 2).astype(np.float32)
        end = bool(abs(self.place[0]) > 3)
        return self.place.clip(-10, 10), float(self.place[0]), end, False, {}


def make_good(speed=1.0):
    assert speed > 0
    return Good()


class Refuses(Good):
    def __init__(self):
        raise OSError("no licence")


class NoActions(gymnasium.Env):
    observation_space = Good.observation_space


class NoObservations(gymnasium.Env):
    action_space = Good.action_space


class ActsByNothing(Good):
    action_space = spaces.Box(-1, 1, (0,))


class ObservesNothing(Good):
    observation_space = spaces.Box(-1, 1, (0,))


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class RaisesSpeechless(Good):
    def step(self, action):
        raise Speechless


class RaisesMuch(Good):
    def step(self, action):
        raise ValueError("x" * 3_000_000)


class RaisesInterrupt(Good):
    def step(self, action):
        raise KeyboardInterrupt


class NoEnvironment:
    pass


class TextObserved(Good):
    observation_space = spaces.Text(3)


class UnboundedActions(Good):
    action_space = spaces.Box(-np.inf, np.inf, (1,))

    def step(self, action):
        return super().step(action[0] > 0)


class WideActions(UnboundedActions):
    action_space = spaces.Box(-2, 2, (1,))


class TextActions(Good):
    action_space = spaces.Dict({"left": spaces.Text(2)})


class Raises(Good):
    def step(self, action):
        raise KeyError("joint_3")


class ResetGivesNoInfo(Good):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class ResetWithoutSeed(Good):
    def reset(self):
        return super().reset()


class StepGivesFour(Good):
    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


class WrongShape(Good):
    def step(self, action):
        observation, *rest = super().step(action)
        return observation[:1], *rest


class WrongType(Good):
    observation_space = spaces.Box(-10, 10, (2,), np.int32)


class OutOfBounds(Good):
    observation_space = spaces.Box(-0.5, 10, (2,), np.float32)


class NotFinite(Good):
    def step(self, action):
        observation, *rest = super().step(action)
        return observation * np.nan, *rest


class SeveralRewards(Good):
    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, np.array([reward, reward]), *rest


class RewardNotFinite(Good):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, float("inf"), *rest


class FlagIsNumber(Good):
    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, int(terminated), truncated, info


class OwnChance(Good):
    def step(self, action):
        observation, *rest = super().step(action)
        return observation + np.random.uniform(0, 0.1, 2).astype(np.float32), *rest


class Remembers(Good):
    """What one episode did shows in the next."""

    wear = 0

    def step(self, action):
        self.wear += 1e-3
        observation, *rest = super().step(action)
        return (observation - np.float32(self.wear)).clip(-10, 10), *rest


class SameAlways(Good):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=7)


class Shared(Good):
    """All copies are at one place."""

    places = np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        Shared.places = observation
        return observation, info

    def step(self, action):
        self.place = Shared.places
        observation, *rest = super().step(action)
        Shared.places = self.place
        return observation, *rest


class ReusesArray(Good):
    def reset(self, *, seed=None, options=None):
        self.seen, info = super().reset(seed=seed)
        return self.seen, info

    def step(self, action):
        observation, *rest = super().step(action)
        self.seen[:] = observation
        return self.seen, *rest


class Endless(Good):
    def step(self, action):
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, False, truncated, info


class KeepsItsPlace(Good):
    """A reset after an end goes on where the last episode stopped."""

    ended = False

    def reset(self, *, seed=None, options=None):
        last = self.place if self.ended else None
        self.ended = False
        observation, info = super().reset(seed=seed)
        if last is None:
            return observation, info
        self.place = last / 2
        return self.place.clip(-10, 10), info

    def step(self, action):
        observation, reward, end, *rest = super().step(action)
        self.ended = end
        return observation, reward, end, *rest


class Masked(Good):
    observation_space = spaces.Dict(
        {"place": Good.observation_space, "action_mask": spaces.MultiBinary(2)}
    )
    mask = (0, 1)

    def observe(self, observation):
        return {"place": observation, "action_mask": np.array(self.mask, np.int8)}

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        return self.observe(observation), info

    def step(self, action):
        assert self.mask[action], "a forbidden action"
        observation, *rest = super().step(action)
        return self.observe(observation), *rest


class MaskForbidsAll(Masked):
    mask = (0, 0)


class MaskTooLong(Masked):
    observation_space = spaces.Dict(
        {"place": Good.observation_space, "action_mask": spaces.MultiBinary(3)}
    )
    mask = (1, 1, 1)


class MethodForbidsAll(Good):
    """Gives its masks as sb3-contrib has it."""

    def action_masks(self):
        return [False, False]


class MethodMasksBox(WideActions, MethodForbidsAll):
    pass


class SlowToClose(Good):
    def close(self):
        raise RuntimeError("the simulator has gone")


class Crashes(Good):
    def step(self, action):
        ctypes.string_at(0)
        return super().step(action)


class Hangs(Good):
    def step(self, action):
        threading.Event().wait()
        return super().step(action)


class HangsLate(Good):
    total = 0

    def step(self, action):
        self.total += 1
        if self.total == 90:
            threading.Event().wait()
        return super().step(action)


class HangsInNativeCode(Good):
    def step(self, action):
        ctypes.PyDLL(None).pause()  # which keeps the interpreter to itself
        return super().step(action)


class Aborts(Good):
    def step(self, action):
        os.abort()


class Exits(Good):
    def step(self, action):
        os._exit(3)


gymnasium.register("Registered-v0", Good)


class LeavesBoundsInItsThirdEpisode(Good):
    """Is right for two episodes."""

    def reset(self, *, seed=None, options=None):
        self.steps, self.episode = 0, 1 if seed is not None else self.episode + 1
        return super().reset(seed=seed, options=options)

    def step(self, action):
        observation, *rest = super().step(action)
        self.steps += 1
        far = 100 if (self.episode, self.steps) == (3, 2) else 0
        return observation + np.float32(far), *rest


class Rounded(gymnasium.vector.SyncVectorEnv):
    """Rounds otherwise for each number of environments, as compiled programs do."""

    def __init__(self, num_envs):
        super().__init__([lambda: gymnasium.make("CartPole-v1")] * num_envs)

    def step(self, actions):
        observations, *results = super().step(actions)
        return observations * np.float32(1 + 1e-6 * self.num_envs), *results
