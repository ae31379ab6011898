"""Masks of allowed actions, wherever an environment gives them."""

import json

import numpy as np
import pytest
from gymnasium import spaces
from masked_envs import DISCRETE, MULTI, Masked, MaskedBox
from unnamed_masks import Unnamed

from srl import RunError, UserError, make_pool
from srl.api.cli import main
from srl.run.metrics import read_metrics


def allowed(mask, space):
    """The action that each row of a mask allows."""
    if space is DISCRETE:
        return mask.argmax(-1) + 2
    return np.stack([mask[:, :3].argmax(-1), mask[:, 3:].argmax(-1)], -1)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("space", [DISCRETE, MULTI], ids=["Discrete", "MultiDiscrete"])
@pytest.mark.parametrize("where", ["info", "method", "observation"])
def test_a_mask_is_observed_wherever_it_is_given(where, space, workers):
    with make_pool(Masked, 3, workers=workers, actions=space, where=where) as pool:
        mask = pool.specs.observation["action_mask"]
        assert mask == spaces.MultiBinary(4 if space is DISCRETE else 5)
        timestep = pool.reset(seed=0)
        for _ in range(12):  # beyond the end of an episode, and its reset
            timestep = pool.step(allowed(timestep.observation["action_mask"], space))


def test_an_environment_without_masks_observes_none():
    with make_pool(Masked, 2, where="nowhere") as pool:
        assert pool.specs.observation == spaces.Box(0, 1, (2,), np.float32)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_environment_whose_module_does_not_name_masks_is_not_reset_to_find_them(workers):
    with make_pool(Unnamed, 3, workers=workers) as pool:
        assert pool.reset(seed=0).observation.ravel().tolist() == [1, 1, 1]


def test_masks_that_were_not_looked_for_are_refused_rather_than_ignored():
    with make_pool(Unnamed, 1, masked=True) as pool:
        with pytest.raises(RunError, match=r"none was found .* add a method action_masks\(\)"):
            pool.reset(seed=0)


def test_a_mask_of_numbers_or_of_floats_is_one_of_flags():
    with make_pool("Taxi-v4", 2) as pool:  # int8
        assert pool.reset(seed=0).observation["action_mask"].shape == (2, 6)

    class Floats(Masked):
        def results(self, first=False):
            place, info = super().results(first)
            return place, {"action_mask": info["action_mask"].astype(float)}

    with make_pool(Floats, 1) as pool:
        assert pool.reset(seed=0).observation["action_mask"].sum() == 1


@pytest.mark.parametrize("workers", [0, 1])
def test_masks_that_begin_after_the_first_reset_are_refused(workers):
    with make_pool(Masked, 1, workers=workers, where="late") as pool:
        pool.reset(seed=0)
        with pytest.raises(
            RunError, match=r"gave info\['action_mask'\] at step, but none was found"
        ):
            pool.step(np.array([2]))


@pytest.mark.parametrize("where", ["method", "observation"])
def test_masks_of_actions_that_are_no_choices_are_refused(where):
    with pytest.raises(UserError, match="masks are for Discrete and MultiDiscrete"):
        make_pool(MaskedBox, 1, where=where)


def test_a_mask_in_an_info_beside_actions_that_are_no_choices_is_refused():
    with make_pool(MaskedBox, 1, where="info") as pool:
        with pytest.raises(RunError, match="masks are for Discrete and MultiDiscrete"):
            pool.reset(seed=0)


def test_an_observed_mask_of_another_size_is_refused():
    with pytest.raises(UserError, match="it must have 4 numbers in one axis"):
        make_pool(Masked, 1, where="observation", size=3)


def test_no_forbidden_action_is_taken_in_training_and_evaluation(tmp_path, capsys):
    words = "--updates 2 --num-envs 2 --algorithm.unroll-length 16 --algorithm.epochs 1".split()
    folder = tmp_path / "run"
    options = ["--workers", "1", "--run-dir", str(folder)]
    assert main(["run", "masked_envs:Masked-v0", *words, *options]) == 0
    assert read_metrics(folder)[-1]["episode_length"] == 5
    capsys.readouterr()
    assert main(["eval", str(folder), "--episodes", "4", "--num-envs", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 4
