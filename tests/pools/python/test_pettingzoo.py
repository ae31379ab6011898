"""PettingZoo's parallel environments: agents that come and go, unlike spaces, masks."""

import sys

import jax
import numpy as np
import pytest
from gymnasium import spaces
from mpe2 import simple_tag_v3
from relay import AGENTS, SIZES, STAYS, Relay

from srl import RunError, UserError, make_pool
from srl.algorithms import PPO
from srl.api.cli import main
from srl.core.types import Unroll
from srl.loop.policy_set import assign
from srl.networks import MLP
from srl.pools import ParallelPool
from srl.run.metrics import read_metrics


def play(pool, steps, seed=0):
    """Timesteps of the one environment, and the actions between them."""
    random = np.random.default_rng(seed)
    timesteps, actions = [pool.reset(seed=0)], []
    for _ in range(steps):
        actions.append(random.integers(0, [2, 3, 4]))
        timesteps.append(pool.step(actions[-1]))
    return timesteps, actions


def test_absent_agents_rows_are_flagged_and_empty():
    with make_pool(Relay) as pool:
        timesteps, actions = play(pool, 7)
    no, yes = False, True
    # Rows 0 to 6 are one episode; row 7 is the first of the next.
    terminated = {"early": [no] * 3 + [yes] * 4 + [no], "late": [no] * 8, "steady": [no] * 8}
    truncated = {
        "early": [no] * 8,
        "late": [yes, yes, no, no, no, no, yes, yes],
        "steady": [no] * 6 + [yes, no],
    }
    there = {"early": [0, 1, 2, 3, 7], "late": [2, 3, 4, 5, 6], "steady": range(8)}
    for i, agent in enumerate(AGENTS):
        assert [t.terminated[i] for t in timesteps] == terminated[agent]
        assert [t.truncated[i] for t in timesteps] == truncated[agent]
        for row, t in enumerate(timesteps):
            number = (1 + row % 7) * (row in there[agent])
            seen = [number] * SIZES[agent] + [0] * (3 - SIZES[agent])
            assert t.observation["observation"][i].tolist() == seen
            allowed = (np.arange(4) <= SIZES[agent]) & (row in there[agent])
            np.testing.assert_array_equal(t.observation["action_mask"][i], allowed)
            acted = row in there[agent] and row - 1 in STAYS[agent] and row > 0
            assert t.reward[i] == (10 * row + actions[row - 1][i] if acted else 0)


def test_episodes_are_the_environments_and_returns_the_agents():
    with make_pool(Relay) as pool:
        timesteps, actions = play(pool, 14)
    assert [int(t.episode_length[0]) for t in timesteps] == [*range(7), *range(7), 0]
    returns = np.array(actions[:6]).astype(float)
    returns[:, 0] *= [1, 1, 1, 0, 0, 0]
    returns[:, 1] *= [0, 0, 1, 1, 1, 1]
    returns = returns.sum(0) + np.array([10 + 20 + 30, 30 + 40 + 50 + 60, 210])
    np.testing.assert_array_equal(timesteps[6].episode_return, returns)


def test_an_agent_that_leaves_without_a_word_is_truncated():
    with make_pool(Relay, fault="wordless") as pool:
        timesteps, _ = play(pool, 7)
    assert (timesteps[3].terminated[0], timesteps[3].truncated[0]) == (False, True)
    assert timesteps[3].observation["observation"][0, 0] == 4
    assert (timesteps[4].terminated[0], timesteps[4].truncated[0]) == (True, False)
    assert timesteps[6].truncated[1:].all()
    assert not timesteps[7].truncated[[0, 2]].any()


def test_spaces_that_differ_in_size_are_padded_and_stay_visible():
    with make_pool(Relay) as pool:
        specs = pool.specs
    assert specs.action == spaces.Discrete(4)
    box = spaces.Box(-9, 9, (3,), np.float32)
    mask = spaces.MultiBinary(4)
    assert specs.observation == spaces.Dict({"observation": box, "action_mask": mask})
    assert [action.n for _, action in specs.agent_spaces] == [2, 3, 4]
    sizes = [space["observation"].shape for space, _ in specs.agent_spaces]
    assert sizes == [(1,), (2,), (3,)]


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (Relay, "Relay has no state_space"),
        ("CartPole-v1", "has no state_space of one"),
        ("native:CartPole-v1", "world_state=True does nothing"),
    ],
)
def test_a_state_that_an_environment_does_not_have_is_refused(env, words):
    with pytest.raises(UserError, match=words):
        make_pool(env, world_state=True)


def test_worker_processes_give_the_same():
    with make_pool(Relay, 3) as here, make_pool(Relay, 3, workers=2) as there:
        assert there.specs == here.specs
        random = np.random.default_rng(0)
        pairs = [(here.reset(seed=0), there.reset(seed=0))]
        for _ in range(8):
            actions = random.integers(0, [2, 3, 4] * 3)
            pairs.append((here.step(actions), there.step(actions)))
    for one, other in pairs:
        jax.tree.map(np.testing.assert_array_equal, one, other)


def test_masks_of_the_infos_are_honoured():
    with make_pool(Relay, masks=True) as pool:
        t = pool.reset(seed=0)
        np.testing.assert_array_equal(
            t.observation["action_mask"], [[0, 1, 0, 0], [0] * 4, [0, 1, 1, 1]]
        )
        for _ in range(20):
            t = pool.step(t.observation["action_mask"].argmax(-1))  # the environment asserts


def test_the_parallel_face_gives_and_takes_each_agents_own():
    with ParallelPool(make_pool(Relay, num_envs=2)) as relays:
        observations, _ = relays.reset(seed=0)
        assert observations["early"]["observation"].tolist() == [[1], [1]]
        assert observations["steady"]["action_mask"].shape == (2, 4)
        assert relays.action_space("early") == spaces.Discrete(2)
        # Nobody asks for actions of an agent that is nowhere.
        results = relays.step({"early": np.array([0, 1]), "steady": np.array([3, 3])})
        assert results[1]["early"].tolist() == [10, 11]
        with pytest.raises(UserError, match="no actions for agent 'early'"):
            relays.step({"steady": np.array([3, 3])})


@pytest.mark.parametrize("workers", [0, 1])
def test_an_action_that_only_others_have_is_refused_and_changes_nothing(workers):
    with make_pool(Relay, workers=workers) as pool:
        pool.reset(seed=0)
        pool.step(np.array([1, 0, 0]))
        told = r"environment 0: the action of early 3 is not in Discrete\(2\)"
        with pytest.raises(UserError, match=told):
            pool.step(np.array([3, 0, 0]))
        assert pool.step(np.array([1, 0, 0])).episode_length == 2


def test_actions_that_are_ignored_may_be_anything_that_some_agent_has():
    with make_pool(Relay) as pool:
        pool.reset(seed=0)
        pool.step(np.array([1, 3, 3]))  # late is not there yet
        pool.step(np.array([1, 3, 3]))
        pool.step(np.array([1, 2, 3]))
        for _ in range(3):
            ended = pool.step(np.array([3, 2, 3])).truncated  # early has left
        assert ended[2]
        assert pool.step(np.array([3, 3, 3])).episode_length == 0


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("empty", "environment 0 has no agents after a reset"),
        ("stranger", r"agents \['stranger'\], which are no possible_agents"),
        ("silent", "no observation of steady, which is among its agents"),
        ("list", "environment 0 gave rewards as list; expected a dict by agent"),
        ("four", r"gave 4 values at step; expected \(observations, rewards, terminations, trunc"),
    ],
)
def test_faulty_environments_are_named(fault, told):
    with make_pool(Relay, fault=fault) as pool, pytest.raises(RunError, match=told):
        play(pool, 1)


class Twins(Relay):
    possible_agents = ["1", 1]  # noqa: RUF012


def test_agents_of_the_same_name_are_refused():
    with pytest.raises(UserError, match=r"possible_agents \['1', '1'\] have the same name twice"):
        make_pool(Twins, 1)


class Unlike(Relay):
    """Agents whose spaces are of different kinds."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def observation_space(self, agent):
        unlike = self.kind == "observation" and agent == "late"
        return spaces.Discrete(3) if unlike else super().observation_space(agent)

    def action_space(self, agent):
        unlike = self.kind == "action" and agent == "late"
        return spaces.Box(-1, 1, (2,)) if unlike else super().action_space(agent)


@pytest.mark.parametrize("kind", ["observation", "action"])
def test_spaces_of_different_kinds_are_refused(kind):
    with pytest.raises(UserError, match=f"early has {kind} space .*, but late .*wrap"):
        make_pool(Unlike, kind=kind)


# ---- ids ----


def test_an_environment_of_mpe2_runs_as_it_does_alone():
    env = simple_tag_v3.parallel_env(max_cycles=10)
    with make_pool("pettingzoo:mpe2.simple_tag_v3", num_envs=2, max_cycles=10) as pool:
        assert pool.specs.agents == ("adversary_0", "adversary_1", "adversary_2", "agent_0")
        assert pool.specs.observation == spaces.Box(-np.inf, np.inf, (16,))
        assert [space.shape for space, _ in pool.specs.agent_spaces] == [(16,)] * 3 + [(14,)]
        timestep = pool.reset(seed=6)
        observations, _ = env.reset(seed=7)
        random = np.random.default_rng(0)
        for t in range(11):
            for i, agent in enumerate(pool.specs.agents):
                own = observations[agent]
                row = timestep.observation[4 + i]
                np.testing.assert_array_equal(row[: len(own)], own.astype(np.float32))
                assert not row[len(own) :].any()
            if t == 10:
                assert timestep.truncated.all()
                break
            action = random.integers(0, 5, 8)
            timestep = pool.step(action)
            chosen = dict(zip(pool.specs.agents, action[4:], strict=True))
            observations, rewards, _, _, _ = env.step(chosen)
            np.testing.assert_array_equal(timestep.reward[4:], np.float32(list(rewards.values())))


def test_a_module_a_factory_and_a_class_may_be_named(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_games.py").write_text(
        "from relay import Relay\nparallel_env = Relay\ndef masked(**options):\n"
        "    return Relay(masks=True, **options)\n"
    )
    for source in ("pettingzoo:my_games", "pettingzoo:my_games:masked", Relay, lambda: Relay()):
        with make_pool(source) as pool:
            assert pool.specs.agents == AGENTS
    with pytest.raises(UserError, match=r"my_games has no chess; .*pettingzoo:my_games:factory"):
        make_pool("pettingzoo:my_games:chess")
    with pytest.raises(UserError, match="no_such_games"):
        make_pool("pettingzoo:no_such_games.tag_v1")


def test_an_option_that_a_parallel_environment_does_not_have_is_told_with_the_nearest(
    tmp_path, monkeypatch
):
    (tmp_path / "my_maze.py").write_text("def parallel_env(size=3, lives=1): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="my_maze has no option 'live'; did you mean lives"):
        make_pool("pettingzoo:my_maze", live=2)


def test_agents_that_take_turns_are_refused():
    with pytest.raises(UserError, match="aec_to_parallel"):
        make_pool(simple_tag_v3.env)


# ---- learning ----


def test_what_a_dead_agents_rows_hold_changes_no_gradient():
    with make_pool(Relay, num_envs=2) as pool:
        instance = PPO(network=MLP(width=8), unroll_length=8).bind(pool.specs)
        state, act = instance.init(jax.random.key(0)), jax.jit(instance.act)
        rows, decisions = pool.rows(9), []
        pool.reset(seed=0, into=rows[0])
        for t in range(8):
            keys = jax.random.split(jax.random.key(t), 6)
            seen = rows[t].timestep.observation
            decisions.append(act(instance.policy(state), seen, (), keys, np.arange(6)))
            pool.step(np.asarray(decisions[-1].action), rows[t + 1])
    steps = rows.timesteps
    action, log_prob = (np.stack([d[i] for d in decisions]) for i in range(2))
    version, slot = np.zeros((8, 1, 2), np.int32), np.arange(6, dtype=np.int32)
    unroll = Unroll(*steps[:4], action, log_prob, (), version, slot)

    absent = ~steps.observation["action_mask"].any(-1)
    assert absent.sum() == 2 * (3 + 4)  # early in rows 4 to 6, late in 0, 1, 7 and 8
    observation = steps.observation["observation"].copy()
    mask, reward = steps.observation["action_mask"].copy(), steps.reward.copy()
    observation[absent], mask[absent], reward[absent] = 1e30, 1, -1e30
    action, log_prob = action.copy(), log_prob.copy()
    action[absent[:-1]], log_prob[absent[:-1]] = 3, 7.0
    other = unroll._replace(
        observation={"observation": observation, "action_mask": mask},
        reward=reward,
        action=action,
        log_prob=log_prob,
    )

    @jax.jit
    def gradient(unroll):
        added = []
        total = lambda sums: added.append(sums) or sums  # noqa: E731
        prepared, _, batch = instance.prepare(state, (), unroll, total)
        instance.gradient_step(prepared, batch, 0, total)
        return added

    one, another = gradient(unroll), gradient(other)
    jax.tree.map(np.testing.assert_array_equal, one, another)
    assert np.abs(one[-1].gradient).max() > 0


def test_policies_are_mapped_by_the_agents_names():
    with make_pool("pettingzoo:mpe2.simple_tag_v3") as pool:
        members = assign(
            {"adversary*": "adversaries", "agent*": "runners"}, pool.specs.agents
        ).trained
    assert members == {"adversaries": (0, 1, 2), "runners": (3,)}


def test_srl_run_trains_on_an_environment(tmp_path):
    words = "--updates 2 --num-envs 2 --algorithm.unroll-length 28 --algorithm.epochs 1".split()
    folder = tmp_path / "run"
    assert main(["run", "pettingzoo:mpe2.simple_tag_v3", *words, "--run-dir", str(folder)]) == 0
    last = read_metrics(folder)[-1]
    assert (last["env_steps"], last["agent_steps"], last["episodes"]) == (112, 448, 4)
    assert last["episode_length"] == 25
    assert {"episode_return/adversary", "episode_return/agent"} < last.keys()
    assert np.isfinite(last["loss/value_loss"])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_of_a_module_whose_agents_take_turns_the_cure_is_shown():
    pytest.importorskip("pettingzoo")
    with pytest.raises(UserError) as told:
        make_pool("pettingzoo:pettingzoo.classic.connect_four_v3")
    assert "the agents of pettingzoo.classic.connect_four_v3 take turns" in str(told.value)
    assert "turn_based_aec_to_parallel(connect_four_v3.env())" in str(told.value)


@pytest.mark.parametrize(
    ("path", "missing", "command"),
    [
        ("mpe2.simple_v3", "mpe2", "pip install mpe2"),
        ("pettingzoo.classic.chess_v6", "pettingzoo", "pip install 'pettingzoo>="),
        ("pettingzoo.butterfly.x_v1", "pymunk", r"pip install 'pettingzoo\[butterfly\]'"),
    ],
)
def test_a_package_that_is_missing_gets_the_command_that_installs_it(
    monkeypatch, tmp_path, path, missing, command
):
    parts = path.split(".")
    for module in [name for name in sys.modules if name.split(".")[0] in (parts[0], missing)]:
        monkeypatch.delitem(sys.modules, module)

    class Absent:
        def find_spec(self, name, path, target=None):
            if name.split(".")[0] == missing:
                raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    if missing not in parts:  # a package that has the module, and lacks what that needs
        folder = tmp_path.joinpath(*parts[:-1])
        folder.mkdir(parents=True)
        for package in (tmp_path / parts[0], folder):
            (package / "__init__.py").write_text("")
        (folder / f"{parts[-1]}.py").write_text(f"import {missing}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match=f"{path} needs {missing}: .*{command}"):
        make_pool(f"pettingzoo:{path}")
