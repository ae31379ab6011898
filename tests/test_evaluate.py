import json

import gymnasium
import jax
import numpy as np
import pytest
from small_runs import save

from srl import evaluate
from srl.algorithms import PPO
from srl.api.cli import main
from srl.config.built_in_envs import config_class
from srl.config.experiment import load_experiment
from srl.core.config_values import config_values
from srl.core.episodes import kinds_of
from srl.core.errors import UserError
from srl.core.types import Specs
from srl.evaluation.episodes import Episodes, Estimate, Evaluator, Player, estimates
from srl.evaluation.matches import OTHER, OURS, Match, compare, lineups, plural, tables
from srl.evaluation.players import trained
from srl.launch.local import train
from srl.loop.policy_set import PolicySet
from srl.pools import make_pool
from srl.pools.config import Contest
from srl.run.folder import create_run, open_run

GAME = """
from srl import Experiment
from srl.algorithms import PPO
from srl.envs.hide_and_seek import HideAndSeek
from srl.networks import MLP

experiment = Experiment(
    name="game",
    env=HideAndSeek(horizon=20),
    num_envs=4,
    algorithm=PPO(network=MLP(width=16), unroll_length=4),
    policies={policies},
    updates=2,
    threads=1,
)
"""


def run(folder, target, *words):
    resolved = load_experiment(str(target), words)
    assert train(resolved.experiment, create_run(resolved, folder)) == 0
    return folder


def saved(folder, target, *words):
    return save(load_experiment(str(target), words), folder).path


@pytest.fixture(scope="module")
def teams_run(tmp_path_factory):
    """Hide-and-seek with a policy for each team."""
    folder = tmp_path_factory.mktemp("teams")
    file = folder / "game.py"
    file.write_text(GAME.format(policies='{"hider*": "hiders", "seeker*": "seekers"}'))
    return saved(folder / "run", file)


@pytest.fixture(scope="module")
def shared_run(tmp_path_factory):
    """Hide-and-seek with one policy for all."""
    folder = tmp_path_factory.mktemp("shared")
    file = folder / "game.py"
    file.write_text(GAME.format(policies='{"*": "everyone"}'))
    return saved(folder / "run", file, "--seed", "1")


@pytest.fixture(scope="module")
def cartpole_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cartpole") / "run"
    return run(
        folder, "native:CartPole-v1", "--updates", "20", "--algorithm.epochs", "2", "--threads", "1"
    )


# ---- whole episodes ----


class Counting(gymnasium.Env):
    """Episodes of 1, 10, 1, 10, ... steps, with reward 1 each; even seeds begin with the long."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    odd = True

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.odd = bool(seed % 2)
        self.length, self.odd, self.steps = (1 if self.odd else 10), not self.odd, 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(1, np.float32), 1.0, self.steps == self.length, False, {}


def player(specs, seed=0):
    instances = PolicySet.of(PPO(), {"*": "policy"}, specs, updates=1)
    return Player(instances, instances.policies(instances.init(jax.random.key(seed))))


def test_short_episodes_are_not_preferred():
    with make_pool(Counting, 4) as pool:
        played = Evaluator(pool, 10).play({"agent": player(pool.specs)})
    # Environments 0 and 1 play three episodes, 2 and 3 play two.
    assert played.lengths.tolist() == [10, 1, 10, 1, 10, 1, 10, 1, 1, 10]
    assert played.returns[:, 0].tolist() == played.lengths.tolist()


def test_the_same_seed_gives_the_same_episodes_and_another_does_not():
    with make_pool("native:CartPole-v1", 3, threads=1) as pool:
        lineup = {"agent": player(pool.specs)}
        first, again = (Evaluator(pool, 6, env_seed=4, seed=1).play(lineup) for _ in range(2))
        other = Evaluator(pool, 6, env_seed=5, seed=1).play(lineup)
    assert first.lengths.tolist() == again.lengths.tolist()
    assert first.lengths.tolist() != other.lengths.tolist()


def test_an_estimate_has_the_standard_error_of_the_mean_and_the_standard_deviation():
    values = np.array([1.0, 2.0, 4.0])
    estimate = Estimate.of(values)
    assert estimate.mean == pytest.approx(7 / 3)
    deviation = np.std(values, ddof=1)
    assert estimate.error == pytest.approx(deviation / np.sqrt(3))
    assert estimate.json()["standard_deviation"] == pytest.approx(deviation)
    assert str(estimate) == "2.333 ± 0.882 (1.528)"
    assert Estimate.of(values[:1]).error is None


def test_results_have_the_names_of_a_runs_metrics():
    box = gymnasium.spaces.Box(0, 1)
    specs = Specs(box, box, ("hider_0", "hider_1", "seeker_0"), ("moves",))
    played = Episodes(np.array([[1.0, 3, 5]]), np.array([7.0]), np.array([[9.0]]), np.arange(1))
    means = {k: v.mean for k, v in estimates(played, specs, {"a": (0, 2), "b": (1,)}).items()}
    assert means == {
        "episode_return": 3,
        "episode_return/hider": 2,
        "episode_return/seeker": 5,
        "episode_return/a": 3,
        "episode_return/b": 3,
        "episode_length": 7,
        "env/moves": 9,
    }


def test_agents_are_of_one_kind_if_only_their_numbers_differ():
    assert kinds_of(("hider_0", "hider1", "seeker_10", "ghost")) == {
        "hider": (0, 1),
        "seeker": (2,),
        "ghost": (3,),
    }


# ---- checkpoints ----


def test_a_checkpoint_alone_gives_the_trained_policies(cartpole_run):
    folder, resolved = open_run(cartpole_run)
    with make_pool(resolved.experiment.env, 1) as pool:
        side = trained(resolved.experiment, folder, pool.specs)
    assert side.source["version"] == 20
    policy = side.player.policies["policy"]
    counts = [leaf for leaf in jax.tree.leaves(policy.normalizer) if leaf.size == 1]
    assert any(count > 1000 for count in counts)  # the statistics of all that was observed


def test_trained_policies_do_better_than_untrained_ones(cartpole_run):
    found = evaluate(cartpole_run, against="untrained", episodes=40)
    (comparison,) = found["comparisons"]
    assert comparison["better"]
    assert comparison["beyond_twice_standard_error"]
    assert comparison["difference"] == pytest.approx(comparison["ours"] - comparison["other"])
    assert [match["cast"] for match in found["matches"]] == [{"agent": "ours"}, {"agent": "other"}]


def test_a_run_against_itself_is_exactly_as_good(cartpole_run):
    found = evaluate(cartpole_run, against=f"{cartpole_run}:20", episodes=5)
    assert found["comparisons"][0]["difference"] == 0
    assert not found["comparisons"][0]["beyond_twice_standard_error"]


def test_greedy_actions_are_others_than_drawn_ones(cartpole_run):
    drawn, best = (evaluate(cartpole_run, episodes=10, sampled=value) for value in (True, False))
    assert drawn["results"] != best["results"]
    assert (drawn["greedy"], best["greedy"]) == (False, True)
    assert evaluate(cartpole_run, episodes=10) == best, "the most probable actions are the default"


def test_teams_of_a_shared_and_of_a_split_run_play_each_other(teams_run, shared_run):
    found = evaluate(teams_run, against=str(shared_run), episodes=6)
    lineups = [tuple(match["cast"].values()) for match in found["matches"]]
    assert lineups == [(OURS, OURS), (OURS, OTHER), (OTHER, OURS), (OTHER, OTHER)]
    hiders, seekers = found["comparisons"]
    assert hiders["statistic"] == seekers["statistic"] == "env/hiders_unseen"
    means = [match["results"]["env/hiders_unseen"]["mean"] for match in found["matches"]]
    assert (hiders["ours"], hiders["other"]) == (means[1], means[3])
    assert (seekers["ours"], seekers["other"]) == (means[2], means[3])
    for match in found["matches"]:
        returns = match["results"]
        total = sum(returns[f"episode_return/{kind}"]["mean"] for kind in ("hider", "seeker"))
        assert total == pytest.approx(0)


def test_a_team_that_plays_for_both_sides_plays_as_alone(teams_run):
    alone = evaluate(teams_run, episodes=6)["results"]
    found = evaluate(teams_run, against="untrained", episodes=6)
    assert found["matches"][0]["results"] == alone
    assert "episode_return/seekers" in alone


# ---- what it says ----


def test_several_agents_of_a_kind_are_named_in_english():
    kinds = ("hider", "adversary", "boy", "fox", "boss", "coach", "blue_team")
    named = " ".join(plural(kind) for kind in kinds)
    assert named == "hiders adversaries boys foxes bosses coaches blue_teams"


CONTEST = Contest("unseen", "share of steps", "hider", "evade", "seeker", "catch")


def matches(values):
    """Cross-play with these shares, in the order of the combinations, ± 0.01."""
    lineups = [(a, b) for a in (OURS, OTHER) for b in (OURS, OTHER)]
    return [
        Match(
            dict(zip(("hider", "seeker"), lineup, strict=True)),
            {
                "env/unseen": Estimate(value, 0.01),
                "episode_return/hider": Estimate(10 * value, 0.1),
                "episode_return/seeker": Estimate(-10 * value, 0.1),
            },
        )
        for lineup, value in zip(lineups, values, strict=True)
    ]


def test_each_team_is_compared_in_the_same_place_against_the_same_others():
    hiders, seekers = compare(matches([0.5, 0.7, 0.2, 0.4]), CONTEST, "untrained")
    assert hiders.sentence == (
        "Our hiders evade untrained seekers better than untrained hiders do: unseen 0.700 against "
        "0.400, difference 0.300 ± 0.014; beyond twice its standard error: yes."
    )
    assert seekers.sentence == (
        "Our seekers catch untrained hiders better than untrained seekers do: unseen 0.200 against "
        "0.400, difference -0.200 ± 0.014; beyond twice its standard error: yes."
    )


def test_a_difference_within_the_error_is_none():
    hiders, seekers = compare(matches([0.5, 0.42, 0.5, 0.4]), CONTEST, "the other run's")
    assert "no better or worse than the other run's hiders do" in hiders.sentence
    assert hiders.sentence.endswith("standard error: no.")
    assert not seekers.better
    assert "catch the other run's hiders worse than" in seekers.sentence


def test_without_a_statistic_that_decides_returns_do():
    hiders, seekers = compare(matches([0.5, 0.7, 0.2, 0.4]), None, "untrained")
    assert hiders.sentence.startswith("Our hiders do better against untrained seekers than")
    assert seekers.statistic == "episode_return/seeker"
    assert seekers.better


def test_the_table_has_hiders_in_rows_and_seekers_in_columns():
    lines = tables(matches([0.5, 0.7, 0.2, 0.4]), CONTEST, "untrained")
    assert lines[0] == "unseen: share of steps"
    assert lines[1].split() == ["seekers:", "ours", "seekers:", "untrained"]
    assert lines[2].split()[2::3] == ["0.500", "0.700"]
    assert lines[3].split()[:2] == ["hiders:", "untrained"]
    assert lines[3].split()[2::3] == ["0.200", "0.400"]


def test_what_ships_with_srl_is_found_by_its_id_and_by_what_a_run_records():
    experiment = load_experiment("native:HideAndSeek-v1").experiment
    config = config_class(experiment.env)
    assert config is not None
    assert config is config_class(config()) is config_class(config_values(config()))
    assert config.contest is not None
    with make_pool(experiment.env, food=1) as pool:
        assert config.contest.statistic in pool.specs.statistics
        assert set(config.statistics) == set(pool.specs.statistics)
    assert config_class("native:CartPole-v1") is config_class({"type": "mine:Env"}) is None


def test_the_command_prints_a_line_for_each_number(cartpole_run, capsys):
    assert main(["eval", str(cartpole_run), "--episodes", "3", "--num-envs", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"run       {cartpole_run}, version 20 (40,960 env steps)"
    names = [line.split()[0] for line in lines[4:]]
    assert names == ["episode_return", "episode_length"]


def test_a_team_with_a_policy_of_its_own_is_shown_once(teams_run, capsys):
    assert main(["eval", str(teams_run), "--episodes", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    returns = [line.split()[0] for line in lines if line.startswith("episode_return")]
    assert returns == ["episode_return", "episode_return/hiders", "episode_return/seekers"]


def test_a_table_of_three_teams_has_what_all_matches_have():
    kinds = ("cat", "dog", "hen")
    own = {"episode_return/cats": Estimate(1.0, None)}  # of a policy, where it plays all
    long = "env/share_of_steps_in_which_cats_sleep"
    shared = {"episode_return/cat": Estimate(2.0, None), long: Estimate(0.5, None)}
    played = [
        Match(lineup, {**shared, **(own if set(lineup.values()) == {OURS} else {})})
        for lineup in lineups(kinds)
    ]
    lines = [line for line in tables(played, None)[1:] if line]
    assert [line.split()[0] for line in lines] == ["episode_return/cat", long]
    assert len(lines[0]) == len(lines[1]), "columns that do not stand below each other"


def test_from_python_there_is_what_the_command_prints_as_json(cartpole_run, capsys):
    assert main(["eval", str(cartpole_run), "--episodes", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == evaluate(str(cartpole_run), episodes=3)


# ---- mistakes ----


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--version", "7"], "there is no version 7"),
        (["--against", "nowhere"], "not a run folder"),
        (["--against", "{run}:7"], "there is no version 7"),
        (["--against", "{game}"], "cannot play here: their environment, native:HideAndSeek-v1,"),
        (["--against", "{game}"], "in its agents and actions and observations; choose a run"),
        (["--episodes", "0"], "--episodes is 0; expected a whole number from 1 up"),
        (["--episdes", "3"], "did you mean --episodes?"),
    ],
)
def test_mistakes_are_told_in_a_line(words, told, cartpole_run, teams_run, capsys):
    words = [word.format(run=cartpole_run, game=teams_run) for word in words]
    assert main(["eval", str(cartpole_run), *words]) == 2
    message = capsys.readouterr().err
    assert told in message
    assert len(message.splitlines()) == 1
    assert len(message) < 400 + len(str(teams_run))


def test_from_python_what_is_no_run_and_no_experiment_is_told(cartpole_run):
    with pytest.raises(UserError, match="the run is None; expected a folder"):
        evaluate(None)
    with pytest.raises(UserError, match="experiment is 'x'; expected an Experiment"):
        evaluate(cartpole_run, experiment="x")


def test_a_run_without_checkpoints_cannot_be_evaluated(tmp_path):
    folder = create_run(load_experiment("native:CartPole-v1"), tmp_path / "run")
    with pytest.raises(UserError, match="there is no checkpoint"):
        evaluate(folder.path, episodes=1)
