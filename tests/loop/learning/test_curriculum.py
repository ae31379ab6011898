"""A curriculum goes from lesson to lesson by metrics of its own episodes."""

import json
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from small_runs import CARTPOLE, assert_same, resolved, train

from srl import Evaluation, Experiment, Lesson, Mixture, PlanError, UserError
from srl.config.experiment import load_experiment
from srl.core.config_values import config_values, made_from
from srl.loop.learning.curriculum import Curriculum
from srl.loop.training import local_training
from srl.pools import NamedEnv

LESSONS = (
    Lesson({"length": 4}, "episode_return >= 0.9", episodes=10),
    Lesson({"length": 8}, "episode_return >= 0.9 and env_steps >= 1e3", episodes=10),
)


def metrics(episode_return, episodes, env_steps=0):
    return {"episode_return": episode_return, "episodes": episodes, "env_steps": env_steps}


def test_a_lesson_ends_when_its_condition_holds_over_enough_of_its_episodes():
    curriculum = Curriculum(LESSONS, metrics(None, 0))
    assert not curriculum.advance(metrics(None, 0))
    assert not curriculum.advance(metrics(0.8, 50))
    assert not curriculum.advance(metrics(0.9, 9))
    assert curriculum.advance(metrics(0.9, 50))
    assert not curriculum.advance(metrics(1.0, 59, 2000)), "its own episodes"
    assert not curriculum.advance(metrics(1.0, 60, 999))
    again = Curriculum(LESSONS, metrics(None, 0))
    again.restore(curriculum.state())
    for one in (curriculum, again):
        assert one.advance(metrics(1.0, 60, 1000))
        assert one.lesson == 2
        assert not one.advance(metrics(1.0, 1000, 1000)), "the last has no end"


def test_a_condition_on_a_task_counts_the_episodes_of_that_task():
    known = {"episodes": 0, "episodes/a": 0, "episodes/b": 0, "episode_return/a": None}
    curriculum = Curriculum([Lesson({"a.x": 1}, "episode_return/a > 1", episodes=5)], known)
    given = {"episodes": 9, "episodes/b": 5, "episode_return/a": 2.0}
    assert not curriculum.advance({**given, "episodes/a": 4})
    assert curriculum.advance({**given, "episodes/a": 5})


MAZE = replace(
    CARTPOLE,
    env="jax:srl.envs.t_maze:TMaze",
    curriculum=(Lesson({"length": 3}, "episode_length >= 3", episodes=1),),
)


def test_a_run_goes_on_in_its_lesson_exactly_as_if_it_had_never_stopped():
    """Means are over the episodes of the lesson."""
    whole, begun, resumed = (local_training(resolved(MAZE).experiment) for _ in range(3))
    for trainer in (whole, begun, resumed):
        trainer.start()
    first = train(begun, 2)
    assert [report["lesson"] for report in first] == [2, 2]
    assert first[0]["episodes"] > 0
    assert first[0]["episode_return"] is None
    state = begun.state()
    resumed.restore(state)
    reports = train(whole, 4)
    assert reports[:2] == first
    assert train(resumed, 2) == reports[2:]
    assert reports[-1]["episode_length"] == 16
    assert_same(whole.learner.states, resumed.learner.states)
    for trainer in (whole, begun, resumed):
        trainer.close()


def test_a_lesson_is_a_text_on_the_command_line(tmp_path):
    text = "length=4, noise=0.5 until episode_return >= 0.9"
    lesson = Lesson.read(text)
    assert lesson == Lesson({"length": 4, "noise": 0.5}, "episode_return >= 0.9")
    assert str(lesson) == text
    arguments = [
        "--curriculum",
        "length=4 until episode_return >= 0.9",
        "length=8 until updates > 9",
    ]
    experiment = load_experiment("jax:srl.envs.t_maze:TMaze", arguments).experiment
    assert [one.options for one in experiment.curriculum] == [{"length": 4}, {"length": 8}]
    lengths = [env.arguments for env in experiment.lesson_envs[:2]]
    assert lengths == [{"length": 4}, {"length": 8}]
    recorded = json.loads(json.dumps(config_values(experiment)))
    assert made_from(recorded, Experiment).curriculum == experiment.curriculum


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.dictionaries(st.text(), JSON, max_size=3),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=2),
    st.integers(1, 100_000),
)
@example({"size": [4, 5], "text": "a, b until c", "half-cheetah.env.x": "8"}, [0.5], 100)
@example({}, [1.0], 7)
def test_the_text_of_a_lesson_is_read_as_an_equal_one(options, bounds, episodes):
    until = " and ".join(f"episode_return/a-b > {bound}" for bound in bounds)
    lesson = Lesson(options, until, episodes)
    assert Lesson.read(str(lesson)) == lesson


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("max-steps=4, map=mountains until updates > 1", {"max_steps": 4, "map": "mountains"}),
        ("on=True, model=3d , x=1e3 until updates > 1", {"on": True, "model": "3d", "x": 1e3}),
        ("size=[4, 5] until updates > 1", {"size": [4, 5]}),
        ("until updates > 1", {}),
    ],
)
def test_values_that_are_no_json_are_texts(text, options):
    assert Lesson.read(text) == Lesson(options, "updates > 1")
    longer = Lesson(options, "updates > 1", episodes=20)
    assert Lesson.read(f"{text} over 20 episodes") == longer


@pytest.mark.parametrize(
    "text",
    [
        "length=4",
        "length until updates > 1",
        "length=4 until",
        "length=4 until updates > nan",
        "length=4 until updates > 1e999",
        "length=4 until updates > 1 over 0 episodes",
        "length=4 until updates > 1 over many episodes",
        "length=[4 until updates",
    ],
)
def test_a_text_that_is_no_lesson_is_refused(text):
    with pytest.raises(ValueError, match="length"):
        Lesson.read(text)


def mixture(**settings):
    tasks = Mixture({"cart": "native:CartPole-v1", "maze": NamedEnv("jax:srl.envs.t_maze:TMaze")})
    return replace(CARTPOLE, env=tasks, **settings)


def test_lessons_name_the_options_of_a_mixtures_tasks():
    lessons = (Lesson({"maze.length": 2}, "episode_return/maze >= 1"),)
    first, last = mixture(curriculum=lessons).lesson_envs
    assert first.tasks["maze"].arguments == {"length": 2}
    assert last.tasks["maze"].arguments == {}


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"curriculum": ("x",)}, UserError, "curriculum[0] is 'x'; expected a Lesson"),
        ({"curriculum": (Lesson({}, "return"),)}, UserError, "curriculum[0].until is 'return'"),
        (
            {"curriculum": (Lesson({}, "episode_return >= nan"),)},
            UserError,
            "expected conditions with finite bounds",
        ),
        ({"curriculum": (Lesson({}, "updates > 1", 0),)}, UserError, "curriculum[0].episodes is 0"),
        (
            {"curriculum": LESSONS, "plan": "central"},
            PlanError,
            "the plan 'central' collects steps in another worker",
        ),
        (
            {"curriculum": LESSONS, "plan": "replicated"},
            PlanError,
            "the plan 'replicated' has 2; take one",
        ),
        ({"num_envs": 9, "plan": "fused"}, PlanError, "give num_envs=10"),
        ({"curriculum": (Lesson({"hop.x": 1}, "updates > 1"),)}, UserError, "an option is 'hop.x'"),
    ],
)
def test_what_is_no_curriculum_or_reaches_no_environment_is_refused(settings, error, message):
    with pytest.raises(error) as raised:
        mixture(**settings).validate()
    assert message in str(raised.value)


def test_a_condition_on_an_unknown_metric_is_refused_before_training():
    curriculum = (Lesson({"length": 3}, "return >= 1"),)
    trainer = local_training(resolved(replace(MAZE, curriculum=curriculum)).experiment)
    with pytest.raises(
        UserError, match=r"curriculum\[0\].until names return; metrics are .*episode_re"
    ):
        trainer.start()
    trainer.close()


def test_evaluation_has_the_options_of_the_last_lesson():
    experiment = replace(MAZE, evaluation=Evaluation(options={"length": 5}))
    assert experiment.evaluation.environment(experiment.env).arguments == {"length": 5}
    assert experiment.lesson_envs[-1] == MAZE.env
