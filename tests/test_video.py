import os
import shutil
import subprocess
import sys
from typing import ClassVar
from xml.etree import ElementTree

import gymnasium
import imageio.v3 as iio
import numpy as np
import pytest
from test_evaluate import player, saved

from srl import evaluate
from srl.api.cli import main
from srl.config.experiment import Experiment
from srl.core.errors import UserError
from srl.envs.hide_and_seek import HideAndSeek
from srl.evaluation.video import Film
from srl.pools import make_pool

# Reading a film starts a program, of which JAX warns, and leaves its pipes to the collector.
pytestmark = [
    pytest.mark.filterwarnings(r"ignore:os\.fork\(\):RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def game_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("game")
    (folder / "game.py").write_text(
        "from srl import Experiment\n"
        "from srl.envs.hide_and_seek import HideAndSeek\n"
        "from srl.algorithms import PPO\n"
        "from srl.networks import MLP\n"
        "algorithm = PPO(network=MLP(width=16), unroll_length=4)\n"
        "env = HideAndSeek(horizon=12)\n"
        "experiment = Experiment('game', env, 4, algorithm, updates=1)\n"
    )
    return saved(folder / "run", folder / "game.py")


@pytest.fixture(scope="module")
def cartpole_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cartpole") / "run"
    return saved(folder, "native:CartPole-v1")


def film(folder, *words):
    return main(["eval", str(folder), "--episodes", "1", *map(str, words)])


def test_hide_and_seek_is_filmed_from_above(game_run, tmp_path, capsys):
    video = tmp_path / "game.mp4"
    assert film(game_run, "--video", video, "--video-episodes", "2", "--drawing") == 0
    assert f"The film is in {video}." in capsys.readouterr().out
    frames = list(iio.imiter(video))
    # A frame for each of 13 observations, and the last of each episode for a second more.
    assert len(frames) == 2 * (13 + 10)
    assert frames[0].shape == (862, 768, 3)
    assert iio.immeta(video)["codec"] == "h264"
    assert "yuv420p" in iio.immeta(video)["pix_fmt"]
    assert (frames[12] == frames[22]).mean() > 0.9
    assert not (frames[0] == frames[12]).all()
    assert [path.name for path in tmp_path.iterdir()] == ["game.mp4"]


def test_an_agent_can_be_followed_and_films_without_a_name_lie_in_the_runs_folder(game_run, capsys):
    films, videos = [], set()
    for camera, name in (("top", "top"), ("follow:seeker_1", "follow_seeker_1")):
        assert film(game_run, "--video", "--drawing", "--camera", camera) == 0
        video = game_run / "videos" / f"version_7_seed_0_{name}_drawing.mp4"
        videos.add(video)
        assert f"The film is in {video}." in capsys.readouterr().out
        assert set((game_run / "videos").iterdir()) == videos
        films.append(np.stack(list(iio.imiter(video))))
    assert films[0].shape == films[1].shape
    assert (films[0] != films[1]).any()


def test_an_agent_that_is_not_there_cannot_be_followed(game_run, tmp_path, capsys):
    words = ["--video", tmp_path / "game.mp4", "--drawing", "--camera", "follow:seeker_7"]
    assert film(game_run, *words) == 2
    assert "there is no such agent, only hider_0, hider_1, seeker_0" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_native_copy_is_filmed_as_the_environment_of_gymnasium(cartpole_run, tmp_path, caplog):
    pytest.importorskip("pygame", reason="CartPole-v1 is drawn by pygame")
    video = tmp_path / "cartpole.mp4"
    assert film(cartpole_run, "--video", video) == 0
    assert "native:CartPole-v1 has no pictures; CartPole-v1 of Gymnasium is shown" in caplog.text
    frames = list(iio.imiter(video))
    assert frames[0].shape == (400, 600, 3)
    assert iio.immeta(video)["fps"] == 50


class Shown(gymnasium.Env):
    """An environment of two steps that notes how it is shown."""

    metadata: ClassVar = {"render_modes": ["human"], "render_fps": 1000}
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,))
    action_space = gymnasium.spaces.Discrete(2)
    modes: ClassVar[list] = []
    steps = 0

    def __init__(self, render_mode=None):
        self.modes.append(render_mode)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(4, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(4, np.float32), 1.0, self.steps == 2, False, {}


def test_episodes_are_shown_live_one_after_the_other(cartpole_run, monkeypatch, capsys):
    monkeypatch.setenv("DISPLAY", ":0")
    found = evaluate(cartpole_run, live=True, experiment=Experiment("shown", Shown))
    assert (found["episodes"], found["results"]["episode_length"]["mean"]) == (3, 2)
    assert Shown.modes == ["human"]
    monkeypatch.setattr(Shown, "metadata", {"render_modes": ["ansi"]})
    with pytest.raises(UserError, match="declares the render modes ansi, and a window needs human"):
        evaluate(cartpole_run, live=True, experiment=Experiment("shown", Shown))
    with pytest.raises(UserError, match=r"native:HideAndSeek-v1 has no window; --video"):
        evaluate(cartpole_run, live=True, experiment=Experiment("game", HideAndSeek()))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    assert main(["eval", str(cartpole_run), "--live"]) == 2
    assert "--live: this machine has no display; --video films" in capsys.readouterr().err


WITHOUT_PYGAME = """
import sys
from xml.etree import ElementTree
sys.modules["pygame"] = None  # as if it were not installed
from srl.api.cli import main
from srl.envs.hide_and_seek import HideAndSeek
sys.exit(main(sys.argv[1:]))
"""


def test_a_film_without_pygame_says_in_a_line_what_to_install(cartpole_run, tmp_path):
    words = ["eval", str(cartpole_run), "--episodes", "1", "--video", str(tmp_path / "film.mp4")]
    command = [sys.executable, "-c", WITHOUT_PYGAME, *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    told = done.stderr.splitlines()[-1]
    assert told.startswith("srl: CartPole-v1 cannot be rendered: pygame is not installed")
    assert 'pip install "gymnasium[classic-control]"' in told
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


class Picture(gymnasium.Env):
    """Three steps, then the end; its pictures have odd sides."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(1, np.float32), 0.0, self.steps == 3, False, {}

    def render(self):
        return np.full((51, 63, 3), 60 * self.steps, np.uint8)


class Seeing(Picture):
    """One that keeps which drivers SDL has as it renders."""

    drivers = ()

    def render(self):
        Seeing.drivers = os.environ.get("SDL_AUDIODRIVER"), os.environ.get("SDL_VIDEODRIVER")
        return super().render()


class NoPicture(Picture):
    def render(self):
        return None


def recorded(env, path):
    with make_pool(env) as pool:
        Film(Experiment("picture", env)).record(path, player(pool.specs), 1)


def test_any_environment_of_gymnasium_that_renders_is_filmed(tmp_path):
    video = tmp_path / "picture.mp4"
    recorded(Picture, video)
    frames = list(iio.imiter(video))
    assert len(frames) == 4 + 5
    assert frames[0].shape == (52, 64, 3)
    assert [int(frame.mean().round(-1)) for frame in frames[:4]] == [0, 60, 120, 180]


@pytest.mark.parametrize(
    ("given", "drivers"),
    [
        ({}, ("dummy", "dummy")),
        ({"DISPLAY": ":0"}, ("dummy", None)),
        ({"SDL_AUDIODRIVER": "alsa", "SDL_VIDEODRIVER": "x11"}, ("alsa", "x11")),
    ],
)
def test_films_need_neither_sound_nor_a_display(given, drivers, tmp_path, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_AUDIODRIVER", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    recorded(Seeing, tmp_path / "picture.mp4")
    assert Seeing.drivers == drivers
    assert dict(os.environ) == before


def test_an_environment_without_pictures_leaves_no_file(tmp_path):
    with pytest.raises(UserError, match="gave no picture"):
        recorded(NoPicture, tmp_path / "picture.mp4")
    assert not list(tmp_path.iterdir())


def test_an_environment_that_takes_no_render_mode_is_refused(tmp_path):
    with pytest.raises(UserError, match="render_mode='rgb_array'"):
        recorded(lambda: Picture(), tmp_path / "picture.mp4")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--video", "film.gif"], "must end in .mp4"),
        (["--video", "nowhere/film.mp4"], "there is no folder nowhere"),
        (["--video", "film.mp4", "--drawing"], "there is no drawing of native:CartPole-v1"),
        (["--video", "film.mp4", "--video-episodes", "0"], "--video-episodes is 0"),
        (["--video", "film.mp4", "--camera", "top"], "native:CartPole-v1 has one camera"),
        (["--camera", "top"], "--camera is for films: give --video, too"),
        (["--video-episodes", "3"], "--video-episodes is for films: give --video, too"),
    ],
)
def test_mistakes_are_told_in_a_line(words, told, cartpole_run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert film(cartpole_run, *words) == 2
    assert told in capsys.readouterr().err


def test_the_program_that_writes_films_comes_with_srl():
    import imageio_ffmpeg

    assert shutil.which(imageio_ffmpeg.get_ffmpeg_exe())


SVG = "{http://www.w3.org/2000/svg}"


def animated(element):
    """The values that an attribute of this element takes, by the attribute's name."""
    moves = [*element.findall(f"{SVG}animate"), *element.findall(f"{SVG}animateTransform")]
    return {move.get("attributeName"): move.get("values").split(";") for move in moves}


def test_hide_and_seek_is_drawn_as_an_svg_file_that_moves(game_run, tmp_path):
    video = tmp_path / "game.svg"
    assert film(game_run, "--video", video) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["game.svg"]
    root = ElementTree.parse(video).getroot()
    pupils = [g for g in root.iter(f"{SVG}g") if len(g.findall(f"{SVG}circle")) == 5]
    assert len(pupils) == 4  # an agent each, two against two
    cones = list(root.iter(f"{SVG}polygon"))
    assert len(cones) == 4
    # A value for each of 13 observations, and the last one for a second more.
    moving = [values for cone in cones if (values := animated(cone).get("points"))]
    assert moving
    for values in moving:
        assert len(values) == 13 + 10
        assert len(set(values[12:])) == 1
    words = {text.text for text in root.iter(f"{SVG}text")}
    assert {"Preparation", "Seeking", "HIDDEN", "SEEN"} == words


@pytest.mark.parametrize(
    ("task", "shown"),
    [("blueprint", "#34a06e"), ("food", "#60be3e")],
)
def test_a_drawing_shows_what_belongs_to_a_task(task, shown):
    env = HideAndSeek(food=3) if task == "food" else HideAndSeek(task=task)
    with make_pool(env) as pool:
        animation = HideAndSeek.animation()
        animation.add(pool, 0, pool.reset(0))
        ElementTree.fromstring(animation.text())
        assert shown in animation.text()


def test_an_svg_file_is_refused_where_it_cannot_be_drawn(game_run, cartpole_run, tmp_path, capsys):
    video = tmp_path / "film.svg"
    for folder, words, reason in (
        (cartpole_run, (), "there is no drawing of native:CartPole-v1"),
        (game_run, ("--camera", "top"), "is drawn from above"),
        (game_run, ("--video-episodes", "2"), "shows one episode"),
    ):
        assert film(folder, "--video", video, *words) == 2
        assert reason in capsys.readouterr().err
    assert not video.exists()
