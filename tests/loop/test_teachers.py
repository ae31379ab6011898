"""Policies of other runs that teach: their advice, their actions, and what is learned from both."""

from contextlib import closing
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from small_runs import CARTPOLE, resolved, save, train

import srl
from srl import Fixed, UserError
from srl.algorithms import DQN, IMPALA, PPO
from srl.algorithms.imitation import ACTION, DISTRIBUTION, FALLING
from srl.config.experiment import load_experiment, resolved_value
from srl.core.schedule import Schedule
from srl.core.types import Specs
from srl.loop.learning.beginning import begun_from
from srl.loop.policy_set import PolicySet
from srl.networks import MLP
from srl.policies.share import copy_what_acts
from srl.record.checkpoint import Checkpoints
from srl.record.run_record import RunFolder
from srl.run.folder import create_run, open_run

SMALL = MLP(width=8, depth=1)
CONTROL = Specs(spaces.Box(-10, 10, (4,), np.float32), spaces.Discrete(2), ("agent",))
ROWS = 256
OBSERVED = np.random.default_rng(0).normal(size=(ROWS, 4)).astype(np.float32)


def saved(folder, algorithm, seed=0):
    """A run of CartPole that has not trained, with checkpoints 7 and 8: decided is the latter."""
    run = save(resolved(replace(CARTPOLE, algorithm=algorithm, seed=seed)), folder)
    with closing(Checkpoints(run.checkpoints)) as checkpoints:
        tree, counts = checkpoints.restore()
        tree["learners"]["policy"]["params"] = jax.tree.map(
            lambda x: 4 * x, tree["learners"]["policy"]["params"]
        )
        checkpoints.save(8, tree, {**counts, "updates": 8}, wait=True)
    return run.path


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """A run whose network is larger than those of its students."""
    return saved(tmp_path_factory.mktemp("teacher") / "run", PPO(network=MLP(width=32)))


@pytest.fixture(scope="module")
def by_values(tmp_path_factory):
    """A run by an algorithm whose policies are no distributions of logits."""
    return saved(tmp_path_factory.mktemp("values") / "run", DQN(network=MLP(width=4)))


def taught(teacher, algorithm=None, **settings):
    """An experiment with a teacher, settled."""
    algorithm = algorithm or PPO(network=SMALL, unroll_length=8, epochs=2, minibatches=2)
    experiment = replace(CARTPOLE, algorithm=algorithm, teacher=teacher, **settings)
    return resolved_value(experiment).experiment


def decision(experiment, specs=CONTROL, observation=OBSERVED):
    """What the student of a first state and its teacher give; and the policies."""
    policy_set = replace(PolicySet.of_experiment(experiment, specs, 10), taught=True)
    policies = policy_set.policies(policy_set.init(jax.random.key(0)))
    given = jax.random.key(1), jnp.uint32(0), jnp.arange(ROWS, dtype=jnp.int32)
    memory = policy_set.initial_memory(ROWS)
    return jax.jit(policy_set.act)(policies, observation, jnp.zeros(ROWS, bool), memory, *given)


def greedy(run, observation=OBSERVED):
    """The most probable actions of a run's policy."""
    return srl.load(run).act(observation)[0]


def test_advice_is_the_teachers_action_and_distribution(teacher):
    advice = decision(taught(teacher)).advice
    np.testing.assert_array_equal(advice[ACTION], greedy(teacher))
    np.testing.assert_allclose(np.exp(advice[DISTRIBUTION]["logits"]).sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_the_teacher_takes_its_share_of_the_actions(teacher, share):
    ppo = PPO(network=SMALL, teacher_share=share)
    alone, shared = decision(taught(teacher, PPO(network=SMALL))), decision(taught(teacher, ppo))
    theirs = np.isposinf(shared.log_prob)
    assert abs(theirs.mean() - share) < 0.1
    expected = np.where(theirs, greedy(teacher), alone.action)
    np.testing.assert_array_equal(shared.action, expected)
    np.testing.assert_array_equal(shared.log_prob[~theirs], alone.log_prob[~theirs])


def test_a_teacher_without_a_distribution_of_the_same_kind_gives_actions_alone(by_values):
    advice = decision(taught(by_values)).advice
    assert advice.keys() == {ACTION}
    np.testing.assert_array_equal(advice[ACTION], greedy(by_values))


def test_an_integer_of_the_observation_chooses_the_teacher_and_keys_are_found(
    teacher, tmp_path, by_values
):
    other = saved(tmp_path / "other", PPO(network=MLP(width=16)), seed=5)
    parts = {
        "task": spaces.Discrete(3),
        "state": CONTROL.observation,
        "seen": spaces.Box(-1, 1, (2,), np.float32),
    }
    specs = replace(CONTROL, observation=spaces.Dict(parts))
    task = np.arange(ROWS, dtype=np.int32) % 3
    observation = {"task": task, "state": OBSERVED, "seen": OBSERVED[:, :2] * 0}
    experiment = taught((str(teacher), Fixed(other), by_values), teacher_key="task")
    advice = decision(experiment, specs, observation).advice
    each = np.stack([greedy(run) for run in (teacher, other, by_values)])
    np.testing.assert_array_equal(advice[ACTION], each[task, np.arange(ROWS)])
    with pytest.raises(UserError, match="one integer from 0 to 2, for 3 teachers; it is Box"):
        decision(replace(experiment, teacher_key="state"), specs, observation)


@pytest.mark.parametrize("algorithm", ["PPO", "IMPALA"])
def test_a_student_imitates_by_its_schedule_whoever_acts(start, teacher, algorithm):
    kind, more = (PPO, {"epochs": 4}) if algorithm == "PPO" else (IMPALA, {})
    settings = dict(network=MLP(width=16), unroll_length=16, learning_rate=1e-2, **more)
    imitating = dict(imitation_cost=Schedule.linear(2.0, 1.0), policy_cost=0.0)
    share = Schedule.linear(1.0, 0.0)
    student = kind(**settings, **imitating, teacher_share=share, entropy_cost=0.0)
    reports = train(start(taught(teacher, student, updates=16)), 16)
    losses = [report["loss/imitation_loss"] for report in reports]
    assert losses[-1] < 0.2 * losses[0]
    assert reports[8]["settings/imitation_cost"] == pytest.approx(2 - 8 / 16)
    assert all(np.isfinite(x) for report in reports for x in report.values() if x is not None)


def test_a_run_keeps_a_copy_of_its_teacher_and_acts_without_it(teacher, tmp_path):
    experiment = replace(taught(teacher), teacher=f"{teacher}:7")
    run = create_run(resolved_value(experiment), tmp_path / "run")
    again = open_run(run.path, to_train=True)[1].experiment.sources["teacher:0"]
    assert (again.version, again.file.is_relative_to(run.path)) == (7, True)
    assert decision(replace(taught(teacher), teacher=(again,))).advice.keys()


def test_the_command_line_names_teachers_and_first_parameters(teacher):
    words = ["--teacher", str(teacher), f"{teacher}:7", "--teacher-key", "task"]
    words += ["--init-from", f"{teacher}:7"]
    experiment = load_experiment("native:CartPole-v1", words).experiment
    assert [each.version for each in experiment.teacher] == [8, 7]
    assert experiment.init_from.version == 7
    assert experiment.algorithm.imitation_cost == Schedule(FALLING)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"algorithm": DQN()}, "DQN learns from none; take PPO, APPO or IMPALA"),
        ({"teacher": (), "algorithm": PPO(imitation_cost=1.0)}, "are weights of a teacher, and"),
        ({"teacher_key": "task"}, "chooses among several teachers, and there is 1"),
        ({"teacher": "/nowhere"}, r"teacher\[0\]: /nowhere is not the folder of a run"),
        ({"teacher": 3}, r"teacher\[0\] is 3; expected RUN_DIR\[:V\]"),
        ({"init_from": "/nowhere"}, "init_from: /nowhere is not the folder of a run"),
    ],
)
def test_what_cannot_teach_is_refused_as_the_experiment_is_loaded(teacher, settings, told):
    with pytest.raises(UserError, match=told):
        resolved_value(replace(CARTPOLE, **{"teacher": teacher, **settings}))


def test_a_teacher_that_does_not_fit_the_environment_is_refused(teacher, tmp_path):
    for changed, told in {
        "action": "has actions of Discrete",
        "observation": "is neither what is observed here, nor some keys of it",
    }.items():
        specs = replace(CONTROL, **{changed: spaces.Box(-1, 1, (3,), np.float32)})
        seen = np.zeros((ROWS, 3), np.float32) if changed == "observation" else OBSERVED
        with pytest.raises(UserError, match=told):
            decision(taught(teacher), specs, seen)
    remembers = saved(tmp_path / "run", PPO(network=replace(SMALL, memory=2)))
    with pytest.raises(UserError, match="has memory or stacks frames, and a teacher sees one"):
        decision(taught(remembers))


def test_a_published_policy_teaches_and_gives_first_parameters(teacher, tmp_path):
    published = RunFolder(tmp_path / "published")
    published.path.mkdir()
    copy_what_acts(RunFolder(teacher), published, 8)
    experiment = taught(published.path, init_from=published.path)
    np.testing.assert_array_equal(decision(experiment).advice[ACTION], greedy(teacher))
    states = PolicySet.of(PPO(network=MLP(width=32)), {"*": "own"}, CONTROL, 1)
    _, report = begun_from(experiment.init_from, states.init(jax.random.key(2)))
    assert "left there" not in "".join(report)
    assert any("new here: values" in line for line in report)
