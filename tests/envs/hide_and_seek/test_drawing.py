import dataclasses

import numpy as np
import pytest

from srl.core.errors import UserError
from srl.envs.hide_and_seek.camera import Camera
from srl.envs.hide_and_seek.config import HideAndSeek
from srl.envs.hide_and_seek.drawing import draw
from srl.envs.hide_and_seek.render import Painter, Renderer, painter
from srl.envs.hide_and_seek.scene import HIDERS, SEEKERS, TEAM_COLORS, Scene
from srl.pools import make_pool


@pytest.fixture
def pool():
    with make_pool(HideAndSeek(), threads=1) as pool:
        pool.reset(3)
        yield pool


@pytest.fixture
def scene(pool):
    return Scene.of(pool.inspect(0), np.zeros(4), np.zeros(4))


def changed(before, after):
    """Where two drawings differ below the caption, as rows and columns of metres."""
    rows, columns = np.nonzero((draw(before) != draw(after)).any(-1)[64:832])
    scale = (before.floor_size + 2 * 0.35) / 768
    return columns * scale - 0.35, before.floor_size + 0.35 - rows * scale


def test_a_drawing_is_a_picture_of_even_size(scene):
    picture = draw(scene)
    assert picture.dtype == np.uint8
    assert picture.shape == (862, 768, 3)


def test_both_games_can_be_drawn_before_and_after_they_are_played():
    for scenario in ("quadrant", "full"):
        with make_pool(HideAndSeek(scenario=scenario), threads=1) as pool:
            timestep = pool.reset(0)
            pictures = [Painter().paint(pool, 0, timestep)]
            for _ in range(3):
                timestep = pool.step(np.ones((4, 5), np.int32))
                pictures.append(Painter().paint(pool, 0, timestep))
            assert (pictures[0] != pictures[-1]).any()


def test_the_scene_knows_who_sees_whom(pool):
    observation = pool.step(np.full((4, 5), 5, np.int32) * [1, 1, 1, 0, 0]).observation
    scene = Scene.of(pool.inspect(0), np.zeros(4), np.zeros(4))
    mask = observation["mask_aa_obs"]
    assert not np.diag(scene.sees).any()
    for agent in range(4):
        for place in range(3):
            assert scene.sees[agent, (agent - 1 - place) % 4] == mask[agent, place]
    for seeker, hider in scene.sightings():
        assert (scene.teams[seeker], scene.teams[hider]) == (SEEKERS, HIDERS)


def test_an_agent_faces_the_side_that_it_sees(pool):
    # The hider looks down along y, where the other one stands, far from everything else.
    pool.inject(0, "walls", [])
    poses = pool.inject, pool.inspect(0)["agents_qpos"].reshape(4, 4).copy()
    poses = poses[1]
    poses[0], poses[1] = (4, 5, 0, 0), (4, 4.5, 0, 0)
    pool.inject(0, "agents_qpos", poses)
    scene = Scene.of(pool.inspect(0), np.zeros(4), np.zeros(4))
    assert scene.facing(0) == pytest.approx([0, -1])
    assert scene.sees[0, 1]
    assert not scene.sees[1, 0]


def test_a_lock_is_drawn_where_the_object_is(scene):
    locked = dataclasses.replace(scene, locked_by=np.array([0, -1, -1]))
    by_seekers = dataclasses.replace(scene, locked_by=np.array([2, -1, -1]))
    for before, after in ((scene, locked), (locked, by_seekers)):
        x, y = changed(before, after)
        assert len(x)
        assert np.abs(x - scene.boxes[0, 0]).max() < 0.45
        assert np.abs(y - scene.boxes[0, 1]).max() < 0.45


def test_a_grip_is_drawn_between_the_agent_and_what_it_holds(scene):
    held = dataclasses.replace(scene, grabbed=np.array([1, -1, -1, -1]))
    x, y = changed(scene, held)
    ends = np.stack([scene.agents[0, :2], scene.boxes[1, :2]])
    assert x.min() > ends[:, 0].min() - 0.5
    assert x.max() < ends[:, 0].max() + 0.5
    assert y.min() > ends[:, 1].min() - 0.5
    assert y.max() < ends[:, 1].max() + 0.5


def test_a_camera_follows_its_agent(pool, scene):
    camera = Camera("follow:hider_1")
    camera.aim(scene, pool.specs.agents)
    assert camera.place == pytest.approx(scene.agents[1, :2])
    moved = dataclasses.replace(scene, agents=scene.agents + np.array([1, 0, 0, 0]), step=1)
    camera.aim(moved, pool.specs.agents)  # it lags behind a little
    assert scene.agents[1, 0] < camera.place[0] < moved.agents[1, 0]
    assert camera.place[1] == pytest.approx(scene.agents[1, 1])
    picture = draw(moved, camera=camera)
    # 768 pixels are 3.6 m around the camera's place; y goes up, and 64 rows are the caption.
    x, y = (moved.agents[1, :2] - camera.place) * [1, -1] * 768 / 3.6 + [384, 384 + 64]
    around = picture[int(y) - 30 : int(y) + 30, int(x) - 30 : int(x) + 30]
    assert (around == TEAM_COLORS[HIDERS]).all(-1).mean() > 0.3


def test_an_agent_outside_of_a_following_cameras_picture_is_not_drawn(pool, scene):
    camera = Camera("follow:hider_0")
    camera.aim(scene, pool.specs.agents)
    away, farther = (
        dataclasses.replace(scene, agents=scene.agents + np.eye(4)[1][:, None] * shift)
        for shift in (50, 60)
    )
    assert (draw(away, camera=camera) == draw(farther, camera=camera)).all()


@pytest.mark.parametrize(
    ("words", "drawing", "told"),
    [
        ("sideways", False, "--camera sideways; expected top, corner, follow or follow:AGENT"),
        ("top:hider_0", False, "expected top, corner"),
        ("follow:", False, "expected top, corner"),
        ("corner", True, "the drawing is from above"),
    ],
)
def test_an_unknown_camera_is_refused(words, drawing, told):
    with pytest.raises(UserError, match=told):
        painter(drawing, words)


def test_being_seen_changes_the_caption(scene):
    seen, hidden = (dataclasses.replace(scene, seen=value) for value in (True, False))
    assert (draw(seen)[:64] != draw(hidden)[:64]).any()
    assert (draw(seen)[64:] == draw(hidden)[64:]).all()


def test_without_opengl_the_drawing_is_used_and_the_reason_told(monkeypatch, caplog):
    monkeypatch.setenv("MUJOCO_GL", "no-such-library")
    chosen = painter()
    assert type(chosen) is Painter
    assert "cannot render off screen" in caplog.text
    assert "no-such-library" in caplog.text


def test_a_drawing_that_was_asked_for_needs_no_excuse(caplog):
    assert type(painter(drawing=True)) is Painter
    assert not caplog.text


@pytest.mark.parametrize(
    "camera", ["corner", pytest.param("top", marks=pytest.mark.slow), "follow:seeker_0"]
)
def test_mujoco_renders_where_opengl_works(camera, pool, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "")
    chosen = painter(camera=camera)
    if not isinstance(chosen, Renderer):
        pytest.skip("there is no OpenGL for rendering off screen")
    timestep = pool.reset(0)
    pool.inject(0, "locked_by", [0, 2, -1])
    try:
        picture = chosen.paint(pool, 0, timestep)
        pool.reset(1)
        other = chosen.paint(pool, 0, timestep)
    finally:
        chosen.close()
    assert picture.shape == (814, 960, 3)
    assert len(np.unique(picture[64:784].reshape(-1, 3), axis=0)) > 500
    assert (picture != other).any()


def test_a_field_of_view_does_not_reach_through_a_wall(scene):
    wall = scene.walls[np.argmax(np.where(scene.walls[:, 4] <= 0.5, scene.walls[:, 3], 0))]
    agents = scene.agents.copy()
    agents[:, 0] = 0.5
    agents[:, 1] = scene.floor_size - 0.5  # the others are away
    agents[0] = wall[0] - wall[2] - 0.3, wall[1], agents[0, 2], np.pi / 2  # it looks along x
    nothing = {"boxes": scene.boxes[:0], "ramps": scene.ramps[:0], "locked_by": np.zeros(0, int)}
    seeing = dataclasses.replace(scene, agents=agents, **nothing)
    turned = agents.copy()
    turned[0, 3] = -np.pi / 2
    x, _ = changed(seeing, dataclasses.replace(seeing, agents=turned))
    assert len(x) > 1000
    assert x.max() < wall[0] + wall[2]
    edge = seeing.view(0, 1.0)
    assert edge[:, 0].max() == pytest.approx(wall[0] - wall[2])
    on_top = agents.copy()
    on_top[0, 2] = 1.0
    over = dataclasses.replace(seeing, agents=on_top).view(0, 1.0)
    assert over[:, 0].max() == pytest.approx(agents[0, 0] + 1.0)


def test_a_field_of_view_ends_at_a_cylinder_that_is_higher_than_the_eye(scene):
    x, y, low, _ = scene.agents[0]
    agents = scene.agents.copy()
    agents[0, 3] = np.pi / 2  # it looks along x
    nothing = {"walls": scene.walls[:0], "boxes": scene.boxes[:0], "ramps": scene.ramps[:0]}
    cylinder = np.array([[x + 2.0, y, 0.5]])
    seeing = dataclasses.replace(scene, agents=agents, cylinders=cylinder, **nothing)
    reach = np.linalg.norm(seeing.view(0, 3.0) - (x, y), axis=1)
    assert reach[len(reach) // 2] == pytest.approx(1.5)
    assert reach[[0, -1]] == pytest.approx(3.0)
    assert (
        (reach < 2.9) == (abs(np.linspace(-67.5, 67.5, 49)) < np.degrees(np.arcsin(1 / 4)))
    ).all()
    agents[0, 2] = low + 0.5
    assert seeing.view(0, 3.0)[:, 0].max() == pytest.approx(x + 3.0)


def test_a_field_of_view_ends_where_the_games_lines_of_sight_do():
    looked = {True: 0, False: 0}
    with make_pool(HideAndSeek(), threads=1) as pool:
        for seed in range(40):
            timestep = pool.reset(seed)
            scene, _, _ = Scene.at(pool, 0, timestep)
            for agent, other in np.argwhere(~np.eye(4, dtype=bool)):
                eye, target = scene.agents[agent, :2], scene.agents[other, :2]
                edge = scene.view(agent, 20.0, 1441) - eye
                reach = np.linalg.norm(edge, axis=1)
                to, distance = target - eye, np.linalg.norm(target - eye)
                nearest = np.argmax(edge @ to / reach)
                aside = edge[nearest] @ to / reach[nearest] / distance
                others = [a for a in range(4) if a not in (agent, other)]
                apart = [np.linalg.norm(scene.agents[a, :2] - eye) > distance for a in others]
                if aside > 0.99999 and all(apart):  # in the cone, and no agent in between
                    sees = bool(scene.sees[agent, other])
                    assert (reach[nearest] >= distance) == sees
                    looked[sees] += 1
    assert min(looked.values()) > 5
