import json
import re

import numpy as np
import pytest
from test_evaluate import saved

from srl.api.cli import main
from srl.config.built_in_envs import built_in_configs
from srl.core.errors import UserError
from srl.evaluation.watch import encoded, page, watch
from srl.pools import make_pool

GAME = """
from srl import Experiment
from srl.algorithms import PPO
from srl.envs.hide_and_seek import HideAndSeek
from srl.networks import MLP

experiment = Experiment(
    name="game",
    env=HideAndSeek({settings}),
    num_envs=4,
    algorithm=PPO(network=MLP(width=16), unroll_length=4),
    updates=1,
)
"""


def game(folder, settings="horizon=12"):
    (folder / "game.py").write_text(GAME.format(settings=settings))
    return saved(folder / "run", folder / "game.py")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return game(tmp_path_factory.mktemp("game"))


def data(file):
    """What a page shows."""
    (text,) = re.findall(r'<script id="data"[^>]*>(.*?)</script>', file.read_text())
    return json.loads(text)


def decoded(track):
    sums = np.cumsum(np.reshape(track["deltas"], track["shape"]), 0)
    return sums / track["scale"]


# ---- what is recorded ----


def test_numbers_come_back_to_three_decimals_and_integers_exactly():
    rng = np.random.default_rng(0)
    floats, integers = rng.normal(scale=50, size=(9, 3, 2)), rng.integers(-9, 1 << 40, (9, 4))
    assert decoded(encoded(list(floats))) == pytest.approx(floats, abs=0.5001e-3)
    assert (decoded(encoded(list(integers))) == integers).all()


def test_what_never_changes_is_kept_once_and_nothing_at_all_is_no_trouble():
    assert encoded([np.array([1, 2])] * 50) == {"shape": (1, 2), "scale": 1, "deltas": [1, 2]}
    assert encoded([np.zeros((0, 4))] * 3)["deltas"] == []


def test_a_page_shows_whole_episodes_of_the_policies_that_evaluations_play(run):
    file = watch(run, episodes=2, seed=3)
    assert file == run / "watch.html"
    first, second = data(file)["episodes"]
    assert first["steps"] == second["steps"] == 13
    rewards = decoded(first["tracks"]["reward"])
    returns = decoded(first["tracks"]["return"])
    assert rewards.cumsum(0) == pytest.approx(returns)
    actions = decoded(first["tracks"]["action"])
    assert actions.shape == (12, 4, 5)
    # The same actions lead another copy of the game the same way.
    from srl.envs.hide_and_seek.config import HideAndSeek
    from srl.loop.seeds import environment_seed

    with make_pool(HideAndSeek(horizon=12), 1, threads=1) as pool:
        timestep = pool.reset(environment_seed(3, "evaluation"))
        for step, action in enumerate(actions.astype(np.int32)):
            at = {name: decoded(track) for name, track in first["tracks"].items()}
            agents = np.reshape(pool.inspect(0)["agents"], (4, 4))
            assert at["agents"][step] == pytest.approx(agents, abs=1e-3)
            assert at["rays"][step] == pytest.approx(
                timestep.observation["lidar"][..., 0], abs=1e-3
            )
            masks = [timestep.observation[f"mask_a{thing}_obs"] for thing in "br"]
            bits = np.stack([at["sees"][step].astype(int) >> bit & 1 for bit in range(7)], 1)
            assert (bits[:, 4:] == np.concatenate(masks, 1)).all()
            timestep = pool.step(action)


def test_the_same_seed_gives_the_same_page_and_another_does_not(run, tmp_path):
    files = [
        watch(run, episodes=1, seed=seed, out=tmp_path / str(i)) for i, seed in enumerate((1, 1, 2))
    ]
    first, again, other = (data(file) for file in files)
    assert first == again
    assert first["episodes"] != other["episodes"]


def test_against_others_each_team_plays_the_other_sides(run):
    found = data(watch(run, episodes=1, against="untrained"))
    titles = [episode["title"] for episode in found["episodes"]]
    assert titles == ["hiders: ours, seekers: untrained", "hiders: untrained, seekers: ours"]


def test_a_large_game_is_a_small_file(tmp_path):
    folder = game(tmp_path, 'scenario="full", hiders=3, seekers=3, boxes_min=9')
    file = watch(folder, episodes=1)
    assert data(file)["episodes"][0]["steps"] == 241
    assert file.stat().st_size < 500_000


def test_a_page_needs_nothing_from_elsewhere(run):
    text = watch(run, episodes=1).read_text()
    assert not re.findall(r"https?:", text)
    assert re.findall(r'(?:src|href)="([^"]*)"', text) == ["data:,"]


def test_no_text_can_end_the_element_that_it_stands_in(tmp_path):
    script = tmp_path / "stage.js"
    script.write_text("const stage = {};")
    title = "</script><script>alert(1)</script>"
    text = page(script, {"title": title, "episodes": []})
    assert "alert(1)</script>" not in text
    (tmp_path / "page.html").write_text(text)
    assert data(tmp_path / "page.html")["title"] == title


# ---- mistakes ----


def test_environments_that_cannot_be_watched_are_told_which_can(tmp_path):
    folder = saved(tmp_path / "run", "native:CartPole-v1")
    told = r"CartPole-v1 cannot be watched in a browser; HideAndSeek \(native:HideAndSeek-v1\) can"
    with pytest.raises(UserError, match=told):
        watch(folder)
    assert not (folder / "watch.html").exists()


def test_every_script_belongs_to_the_environments_package():
    scripts = [recorder.script for config in built_in_configs() if (recorder := config.recorder())]
    assert scripts
    assert all(script.is_file() for script in scripts)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--episodes", "0"], "--episodes is 0; expected a whole number from 1 up"),
        (["--seed", "-1"], "--seed is -1; expected a whole number from 0 up"),
        (["--version", "9"], "there is no version 9"),
        (["--against", "nowhere"], "not a run folder"),
        (["--out", "nowhere/page.html"], "there is no folder nowhere"),
        (["--out", "."], "--out . is a folder; give the name of a file"),
    ],
)
def test_mistakes_are_told_in_a_line(words, told, run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["watch", str(run), *words]) == 2
    output = capsys.readouterr()
    assert told in output.err
    assert len(output.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_the_page_has_the_colours_and_sizes_of_films():
    from srl.envs.hide_and_seek import scene
    from srl.envs.hide_and_seek.recorder import GameRecorder

    script = GameRecorder.script.read_text()
    pairs = {
        **{"CUBE": scene.CUBE_COLOR, "LONG_BOX": scene.LONG_BOX_COLOR, "RAMP": scene.RAMP_COLOR},
        **{"SITE": scene.SITE_COLOR, "CYLINDER": scene.CYLINDER_COLOR, "FOOD": scene.FOOD_COLOR},
    }
    for name, color in pairs.items():
        assert f'{name} = "#{bytes(color).hex()}"' in script
    teams = ", ".join(f'"#{bytes(color).hex()}"' for color in scene.TEAM_COLORS)
    assert f"TEAM = [{teams}]" in script
    assert f"RADIUS = {scene.AGENT_RADIUS}," in script
