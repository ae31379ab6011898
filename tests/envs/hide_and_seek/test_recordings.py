"""Episodes of the reference environment come out the same here."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from srl.core.errors import UserError
from srl.envs.hide_and_seek import verify
from srl.envs.hide_and_seek.recording import Recording

RECORDINGS = sorted(Path(__file__).with_name("recordings").glob("*.npz"))
QUADRANT = next(path for path in RECORDINGS if path.stem == "quad_2v2_31")
TIED = next(path for path in RECORDINGS if path.stem == "full_3v3_14")


@pytest.fixture
def changed(tmp_path):
    """`changed(path, change)` copies a recording whose arrays `change` has changed."""

    def copy(path, change):
        with np.load(path) as file:
            arrays = {name: np.array(file[name]) for name in file.files}
        change(arrays)
        np.savez(tmp_path / "changed.npz", **arrays)
        return tmp_path / "changed.npz"

    return copy


verified = cache(verify.verify)
"""For files that no test changes."""


def failed(report):
    return {key for key, difference in report.differences.items() if not difference.passed}


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_recording_is_observed_ruled_and_moved_as_it_was(path):
    report = verified(path)
    assert failed(report) == set()
    assert report.near_thresholds == []
    assert report.same_rules_for > verify.REPLAY_STEPS
    keys = {f"states/{name}" for name in ("reward", "done", "grabbed", "locked", "lidar", "qpos")}
    assert keys <= report.differences.keys()


def test_a_lock_by_several_at_once_may_have_been_drawn_otherwise():
    assert verified(TIED).ties == ["step 142: object 3"]


def flip(name, step, place):
    def change(arrays):
        arrays[name][(step, *place)] = ~arrays[name][(step, *place)]

    return change


def add(name, step, place, value):
    def change(arrays):
        arrays[name][(step, *place)] += value

    return change


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (flip("obs/mask_aa_obs", 40, (0, 1)), "states/mask_aa_obs"),
        (flip("obj_grabbed", 20, (0, 1)), "states/grabbed"),
        (flip("locked/0", 50, (1,)), "states/locked"),
        (add("reward", 60, (3,), 1), "states/reward"),
        (flip("done", 60, ()), "states/done"),
        (flip("done", 79, ()), "replay/done"),
        (add("obs/lidar", 10, (0, 7, 0), 1e-5), "states/lidar"),
        (add("obs/box_obs", 30, (1, 1, 2), 1e-5), "states/box_obs"),
        (add("state/qvel", 33, (5,), 1e-4), "states/qvel"),
        (add("obs/lidar", 10, (0, 7, 0), np.nan), "states/lidar"),
        (add("model/geom_friction", 5, (0,), 0.1), "model/geom_friction"),
        (add("model/dof_damping", 2, (), 0.1), "model/dof_damping"),
    ],
)
def test_what_differs_is_told_by_its_key(changed, change, key):
    assert key in failed(verify.verify(changed(QUADRANT, change)))


def test_a_locker_that_did_not_press_is_no_tie(changed):
    def change(arrays):
        arrays["action/action_glueall"][142, arrays["which_locked/1"][142, 3]] = 0

    report = verify.verify(changed(TIED, change))
    assert report.ties == []
    assert failed(report) & {"states/last_locker", "states/locked"}


def test_a_mask_at_its_threshold_may_be_either_and_is_listed(changed):
    recording = Recording.load(QUADRANT)
    last, agents = recording.steps, recording.agents
    rows = recording["state/qpos"][last].reshape(-1, 4)
    # A hider sees something at the edge of its view: so it was recorded, but rounding has turned
    # the hider away by half of what counts as near.
    agent, other = next(
        (a, (a - 1 - place) % agents)
        for a, place in zip(*np.nonzero(recording["obs/mask_aa_obs"][last]), strict=True)
    )
    toward = np.arctan2(*(rows[other, 1::-1] - rows[agent, 1::-1]))
    edge = toward + 3 / 8 * np.pi + np.pi / 2

    def facing(angle):
        def change(arrays):
            arrays["state/qpos"][last, 4 * agent + 3] = angle

        return change

    def observed(angle):
        path = changed(QUADRANT, facing(angle))
        with verify.opened(Recording.load(path)) as world:
            world.put(last)
            return world.observed()

    inside = observed(edge - verify.THRESHOLD / 2)
    outside = observed(edge + verify.THRESHOLD / 2)
    assert (inside["mask_aa_obs"] != outside["mask_aa_obs"]).sum() == 1

    def change(arrays):
        facing(edge + verify.THRESHOLD / 2)(arrays)
        for key in ("observation_self", "agent_qpos_qvel", "lidar"):
            arrays[f"obs/{key}"][last] = outside[key].reshape(arrays[f"obs/{key}"][last].shape)
        for key in ("mask_aa_obs", "mask_ab_obs", "mask_ar_obs"):
            arrays[f"obs/{key}"][last] = inside[key].reshape(arrays[f"obs/{key}"][last].shape)

    report = verify.verify(changed(QUADRANT, change))
    assert report.near_thresholds == [f"step {last}: mask_aa_obs"]
    assert not failed(report) - {"states/qpos"}


def set_config(**values):
    def change(arrays):
        meta = json.loads(arrays["meta"].tobytes())
        meta["config"] |= values
        arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda arrays: arrays.pop("obj_grabbed"), "no array 'obj_grabbed'"),
        (lambda arrays: arrays.pop("meta"), "no recording"),
        (
            lambda arrays: arrays.update({"state/qpos": arrays["state/qpos"][:-1]}),
            "state/qpos has the shape (80, 28), expected (81, 28)",
        ),
        (set_config(lock_type="no_lock"), "option 'lock_type' is 'no_lock'"),
        (
            lambda arrays: arrays.update({"model/dof_damping": np.ones(3)}),
            "model/dof_damping has 3 numbers, expected 28",
        ),
        (add("state/qvel", 33, (5,), np.nan), "state/qvel has numbers that are not finite"),
        (set_config(n_food=3), "n_food=3; expected 0"),
        (set_config(scenario="moon"), "the scenario 'moon'; expected 'quadrant'"),
    ],
)
def test_a_wrong_file_gets_one_clear_error(changed, capsys, change, words):
    assert verify.main([str(changed(QUADRANT, change))]) == 2
    errors = capsys.readouterr().err
    assert words in errors
    assert errors.count("\n") == 1


def test_a_file_that_is_no_recording_gets_one_clear_error(tmp_path, capsys):
    (tmp_path / "text.npz").write_text("hello")
    np.savez(tmp_path / "other.npz", numbers=np.zeros(3))
    files = [str(tmp_path / name) for name in ("text.npz", "absent.npz", "other.npz")]
    assert verify.main([*files, str(QUADRANT)]) == 2
    told = capsys.readouterr()
    text, absent, other = told.err.splitlines()
    assert text.endswith("text.npz is no recording of hide-and-seek: it is not an .npz file")
    assert absent.startswith("srl: cannot read ")
    assert other.endswith("is no recording of hide-and-seek: it has no 'meta'")
    assert "passed" in told.out  # the others are replayed all the same


def test_a_damaged_recording_gets_one_clear_error(tmp_path):
    content, damaged = QUADRANT.read_bytes(), tmp_path / "damaged.npz"
    refused = 0
    for place in range(0, len(content), len(content) // 150):
        damaged.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        try:
            Recording.load(damaged)
        except UserError:
            refused += 1
    assert refused > 100


def test_the_command_prints_every_difference_as_json(capsys):
    assert verify.main([str(QUADRANT), "--json"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert line["passed"]
    assert line["steps"] == 80
    assert line["differences"]["states/reward"] == {
        "largest": 0.0,
        "step": None,
        "tolerance": 0.0,
        "passed": True,
    }
