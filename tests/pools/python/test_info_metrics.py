"""What environments in Python report of their episodes, and parts of observations left out."""

import json

import numpy as np
import pytest
from reporting_envs import LENGTH, Pair, Reporting

from srl import RunError, UserError, make_pool, make_vec
from srl.api.cli import main
from srl.core.episodes import EpisodeWindow
from srl.core.types import Specs

TEXTS = ["mission", "hint"]


def last_steps(pool, episodes=2):
    """The statistics of each episode's last step, [episodes, N, ...], with actions of 0 and 1."""
    pool.reset(seed=0)
    rows = []
    for _ in range(episodes):
        for _ in range(LENGTH):
            timestep = pool.step(np.arange(pool.num_envs) % 2)
        assert timestep.terminated.all()
        rows.append(np.copy(timestep.statistics))
        first = pool.step(np.zeros(pool.num_envs, np.int64)).statistics
        assert np.isnan(first).all()
    return np.stack(rows)


@pytest.mark.parametrize("workers", [0, 2])
def test_numbers_of_the_last_info_are_statistics_of_the_episode(workers):
    with make_pool(Reporting, 2, workers=workers, metrics="episode", ignore=TEXTS) as pool:
        assert pool.specs.statistics == ("distance", "episode", "is_success")
        found = last_steps(pool)
    np.testing.assert_array_equal(found[:, :, 0], LENGTH / 2)
    np.testing.assert_array_equal(found[:, :, 1], [[0, 0], [1, 1]])
    np.testing.assert_array_equal(found[:, :, 2], [[0, 1], [0, 1]])


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_so_they_are_of_a_vector_environment_in_each_mode(mode):
    options = {"metrics": ["distance", "episode"], "ignore": TEXTS, "mode": mode}
    with make_pool("vector:reporting_envs:several", 2, **options) as pool:
        assert pool.specs.statistics == ("distance", "episode", "is_success")
        found = last_steps(pool)
    np.testing.assert_array_equal(found[:, :, 0], LENGTH / 2)
    assert (found[1, :, 1] > found[0, :, 1]).all()  # by more than 1 where a mode resets more often
    np.testing.assert_array_equal(found[:, :, 2], [[0, 1], [0, 1]])


def test_of_several_agents_they_are_the_mean_of_what_each_gave_last():
    with make_pool(Pair, ignore=["mission"]) as pool:
        assert pool.specs.statistics == ("distance",)
        pool.reset(seed=0)
        found = [float(pool.step(np.zeros(2, np.int64)).statistics[0, 0]) for _ in range(3)]
    np.testing.assert_array_equal(found, [np.nan, 1.0, 2.5])


def test_a_metric_that_is_no_number_is_named():
    with make_pool(Reporting, 1, wrong=True, ignore=TEXTS) as pool:
        pool.reset(seed=0)
        with pytest.raises(RunError, match="gave the metric 'distance' as 'far'; expected one"):
            pool.step(np.zeros(1, np.int64))
    with pytest.raises(UserError, match=r"metrics is 3; expected a list of names"):
        make_pool(Reporting, 1, metrics=3)
    with pytest.raises(UserError, match=r"metrics=\['x'\] does nothing for native:CartPole-v1"):
        make_pool("native:CartPole-v1", 1, metrics=["x"])


def test_envpools_infos_have_them_too():
    pytest.importorskip("envpool")
    with make_pool("envpool:Ant-v4", 2, metrics=["x_position", "reward_ctrl"]) as pool:
        pool.reset(seed=0)
        found = pool.step(np.ones((2, 8), np.float32)).statistics
        assert found.shape == (2, 2)
        assert (found != 0).all()
    with pytest.raises(UserError, match="reports no 'speed'; its infos have reward_forward,"):
        make_pool("envpool:Ant-v4", 2, metrics=["speed"])


def test_vector_environments_have_them_in_the_infos_of_last_steps():
    env = make_vec(Reporting, 2, ignore=TEXTS, metrics="never")
    env.reset(seed=0)
    infos = [env.step(np.array([0, 1]))[4] for _ in range(LENGTH)]
    assert not infos[0]
    assert infos[-1]["is_success"].tolist() == [0, 1]
    assert infos[-1]["_is_success"].all()
    assert not infos[-1]["_never"].any()
    env.close()


# ---- parts that are left out ----


def test_parts_that_are_no_numbers_can_be_left_out():
    with pytest.raises(
        UserError, match=r"\['mission'\] is a space of Text.*--env.ignore mission,hint \(ignore=\["
    ):
        make_pool(Reporting)
    with make_pool(Reporting, ignore="mission,hint") as pool:
        assert list(pool.specs.observation) == ["cell"]
        assert pool.reset(seed=0).observation["cell"].shape == (1, 2)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["misson"], "there is no part 'misson' to ignore; observed are cell, mission, hint"),
        (["cell", "mission", "hint"], "all that is observed is ignored"),
    ],
)
def test_what_cannot_be_left_out_is_told(names, text):
    with pytest.raises(UserError, match=text):
        make_pool(Reporting, ignore=names)
    with pytest.raises(UserError, match="parts of a Dict, but what is observed is Box"):
        make_pool("CartPole-v1", ignore=["mission"])


# ---- over episodes ----


def test_means_are_over_the_episodes_that_gave_the_number():
    specs = Specs(None, None, ("agent",), statistics=("sometimes", "never"))
    window = EpisodeWindow(specs, {"policy": (0,)})
    assert window.report() == {
        **dict.fromkeys(("episode_return", "episode_length", "env/sometimes", "env/never")),
        "episodes": 0,
    }
    nan = np.nan
    window._episodes[:3] = [[1, 10, nan, nan], [1, 10, 0.5, nan], [1, 10, 1, nan]]
    window.total = 3
    report = window.report()
    assert report["env/sometimes"] == 0.75
    assert "env/never" not in report

    others = EpisodeWindow(Specs(None, None, ("agent",), statistics=("other",)), {"policy": (0,)})
    others.restore(window.state())
    assert others.report() == {"episode_return": 1, "episode_length": 10, "episodes": 3}


def test_a_run_has_them_in_its_metrics_and_ends_by_one(tmp_path, capsys):
    code = main(
        [
            *("run", "reporting_envs:Reporting", "--env.ignore", "mission", "--env.ignore=hint"),
            *("--env.metrics", "episode,never", "--num-envs", "4", "--updates", "100000"),
            *("--algorithm.unroll-length", "16", "--algorithm.network.mlp.width", "8"),
            *("--evaluation.metric", "env/is_success", "--evaluation.target", "0"),
            *("--evaluation.share", "1", "--run-dir", str(tmp_path / "run")),
        ]
    )
    text = capsys.readouterr()
    assert code == 0, text.err
    assert "has reached the target: its eval/env/is_success is" in text.out
    lines = [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    trained = [line for line in lines if "env/distance" in line]
    assert trained[-1]["env/distance"] == 1.5
    assert trained[-1]["env/is_success"] > 0
    assert trained[-1]["env/episode"] >= 1
    assert "env/never" not in trained[-1]
    evaluated = [line for line in lines if "eval/env/is_success" in line]
    assert evaluated[-1]["eval/env/distance"] == 1.5
