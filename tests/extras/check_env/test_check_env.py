"""`srl check-env`, as its user calls it, on environments that break one promise each."""

import json
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from srl.api.cli import main
from srl.extras.check_env.checks import findings
from srl.extras.check_env.report import Finding, draw_action

MODULE = "broken_environments"
QUICK = ("--steps", "120")


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture
def in_this_process(monkeypatch):
    """Starts no process for the checks, as environments that end or hang theirs need one."""

    def found(settings):
        each = findings(settings, watch=lambda making=False: None)
        return (finding for finding in each if isinstance(finding, Finding))

    monkeypatch.setattr("srl.extras.check_env.command.findings_of_child", found)


def checked(capsys, env, *words):
    """The exit code and (check, verdict, text) of each line."""
    quick = () if "--steps" in words else QUICK
    code = main(["check-env", env, *quick, *words, "--json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return code, [(line["check"], line["verdict"], line["text"]) for line in lines]


def test_agents_that_wait_for_their_turn_may_have_no_action(capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "pools"))
    code, found = checked(capsys, "pettingzoo:turn_taking:Turns")
    assert ("results", "ok", "in their spaces and finite, masks allow an action") in found
    assert code == 0, found


@pytest.mark.parametrize("env", [f"{MODULE}:Good", f"{MODULE}:Masked", "CartPole-v1"])
def test_a_good_environment_passes_every_check(capsys, env):
    code, found = checked(capsys, env)
    assert [line for line in found if line[1] != "ok"] == []
    assert code == 0
    assert [check for check, *_ in found if check != "pool"] == [
        *("making", "spaces", "results", "determinism", "seeds", "independence"),
        *("fresh arrays", "episode end", "reset", "speed", "close"),
    ]


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    ("name", "check", "told"),
    [
        ("Refuses", "making", "making the environment raised OSError: no licence"),
        ("NoEnvironment", "making", "NoEnvironment; expected a gymnasium.Env"),
        ("NoActions", "making", "NoActions has no action_space; set self.action_space"),
        ("NoObservations", "making", "NoObservations has no observation_space; set"),
        ("ActsByNothing", "spaces", "holds no number"),
        ("ObservesNothing", "spaces", "holds no number; give it at least one"),
        ("RaisesSpeechless", "results", "raised Speechless: (its text is unknown: its __str__"),
        ("RaisesMuch", "results", "xxx... (2,998,000 more characters)"),
        ("RaisesInterrupt", "results", "step 1 of episode 1 raised KeyboardInterrupt"),
        ("TextObserved", "spaces", "is not supported"),
        ("TextActions", "spaces", "action space Text(1, 2, charset="),
        ("Raises", "results", "step 1 of episode 1 raised KeyError: 'joint_3'"),
        ("ResetGivesNoInfo", "results", "reset gave ndarray; expected (observation, info)"),
        ("ResetWithoutSeed", "results", "; expected reset(self, *, seed=None, options=None)"),
        ("StepGivesFour", "results", "step gave a tuple of ndarray, float, bool, dict"),
        (
            "WrongShape",
            "results",
            "step 1 of episode 1: observation has shape (1,); its space has (2,)",
        ),
        ("WrongType", "results", "observation is an array of shape (2,), float32; its space has"),
        ("OutOfBounds", "results", "is less than -0.5"),
        ("NotFinite", "results", "observation is not finite: nan"),
        ("SeveralRewards", "results", "gave 2 numbers as the reward; expected one"),
        ("RewardNotFinite", "results", "the reward is not finite: inf"),
        ("FlagIsNumber", "results", "terminated is int 0; it must be a bool"),
        ("MaskForbidsAll", "results", "action_mask allows no action at all"),
        ("MethodForbidsAll", "results", "action_mask allows no action at all"),
        ("MethodMasksBox", "making", "masks are for Discrete and MultiDiscrete actions"),
        ("MaskTooLong", "results", "action_mask has 3 entries; the actions are 2"),
        (
            "OwnChance",
            "determinism",
            "the same copy again gives another observation at step 1 of episode 1",
        ),
        (
            "Remembers",
            "determinism",
            "the same copy again gives another observation at step 1 of episode 1",
        ),
        ("Shared", "independence", "stepping one copy moves the other"),
        (
            "ReusesArray",
            "fresh arrays",
            "the observation of the reset of episode 1 changes in step 1 of episode 1",
        ),
        ("KeepsItsPlace", "reset", "after an episode's end gives another observation"),
        ("SlowToClose", "close", "close raised RuntimeError: the simulator has gone"),
    ],
)
def test_a_broken_promise_is_named(capsys, name, check, told):
    code, found = checked(capsys, f"{MODULE}:{name}")
    assert code == 1
    fixes = [(c, text) for c, verdict, text in found if verdict == "fix"]
    assert fixes[0][0] == check
    assert told in fixes[0][1]


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    ("name", "check", "told"),
    [
        ("UnboundedActions", "spaces", "actions are unbounded"),
        ("WideActions", "spaces", "RescaleAction"),
        ("SameAlways", "seeds", "two seeds give the same episode"),
        ("Endless", "episode end", "no time limit: set max_episode_steps"),
    ],
)
def test_what_may_be_meant_so_is_a_warning(capsys, name, check, told):
    code, found = checked(capsys, f"{MODULE}:{name}")
    assert code == 0
    assert [c for c, verdict, text in found if verdict == "warning" and told in text] == [check]


def test_what_others_stand_on_stops_the_rest(capsys):
    _, found = checked(capsys, f"{MODULE}:Raises")
    assert found[-1][0] == "the rest"
    assert "left out until this is fixed: determinism, seeds" in found[-1][2]


@pytest.mark.parametrize(
    "env", ["native:CartPole-v1", "native:HideAndSeek-v1", "envpool:CartPole-v1"]
)
def test_pools_are_checked_through_their_face(capsys, env):
    if env.startswith("envpool:"):
        pytest.importorskip("envpool")
    code, found = checked(capsys, env, "--steps", "40")
    assert [line for line in found if line[1] == "fix"] == []
    assert code == 0
    assert {check for check, *_ in found} >= {"results", "determinism", "independence", "autoreset"}


def test_a_difference_of_rounding_is_no_dependence_on_others(capsys):
    code, found = checked(capsys, f"vector:{MODULE}:Rounded", "--steps", "40")
    (finding,) = (line for line in found if line[0] == "independence")
    assert finding[1] == "warning"
    assert "alike but for rounding" in finding[2]
    assert code == 0


def test_options_go_to_the_environment_and_a_person_can_read_it(capsys):
    assert main(["check-env", f"{MODULE}:make_good", *QUICK, "--env.speed", "2.0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ok       making        two copies of Good"
    assert main(["check-env", f"{MODULE}:make_good", *QUICK, "--speed", "0"]) == 1
    assert "making the environment raised AssertionError" in capsys.readouterr().out


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "ID|MODULE:FACTORY"),
        (["NoSuch-v0"], "neither an environment id nor module:factory"),
        (["no_such_module:make"], "No module named 'no_such_module'"),
        ([f"{MODULE}:Absent"], "neither an environment id nor module:factory"),
        (["CartPole-v1", "--steps", "0"], "--steps"),
        (["native:CartPoll-v1"], "did you mean native:CartPole-v1"),
        (["CartPole-v1", "--foo", "3"], "CartPole-v1 has no option 'foo'; it has sutton_barto_"),
        (["Pendulum-v1", "--env.gg", "3"], "Pendulum-v1 has no option 'gg'; did you mean g?"),
        ([f"{MODULE}:make_good", "--env.sped", "3"], "no option 'sped'; did you mean speed?"),
        (["Pendulum-v1", "--env.g"], "--env.g has no value; give --env.g VALUE"),
        (["native:CartPole-v1", "--foo", "3"], "foo"),
    ],
)
def test_a_wrong_call_is_told_in_a_line(capsys, words, told):
    assert main(["check-env", *words]) == 2
    text = capsys.readouterr().err
    assert told in text
    assert len(text.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Crashes", "was killed by SIGSEGV"),
        ("Aborts", "was killed by SIGABRT"),
        ("Exits", "exited with code 3"),
        ("Hangs", "a call of the environment did not return"),
        ("HangsInNativeCode", "a call of the environment did not return"),
    ],
)
def test_an_environment_that_ends_or_hangs_its_process_gets_a_verdict(capsys, name, told):
    code, found = checked(capsys, f"{MODULE}:{name}", "--seconds", "0.5")
    assert code == 1
    assert found[-1][:2] == ("survival", "fix")
    assert told in found[-1][2]
    frames = found[-1][2].splitlines()[1:]
    if name != "Exits":
        assert "broken_environments.py" in "".join(frames)
        assert not any("check_env/" in frame and "tests" not in frame for frame in frames)


def test_a_check_that_takes_long_is_shown_with_how_long_making_may_take(capsys):
    main(["check-env", f"{MODULE}:Good", "--seconds", "0.01"])  # Python takes longer to start
    told = capsys.readouterr().err
    assert (
        told.count("still in the check of making; a call that makes an environment is given") == 1
    )
    assert "up after 60 s" in told


def test_a_hang_after_many_steps_is_found_too(capsys):
    code, found = checked(capsys, f"{MODULE}:HangsLate", "--seconds", "0.5")
    assert (code, found[-1][1]) == (1, "fix")
    assert "in step" in found[-1][2]


def test_an_environment_in_jax_may_take_its_time_to_compile(capsys, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "docs")
    code, found = checked(capsys, "jax:corridor:Corridor", "--seconds", "0.01")
    assert (code, [check for check, verdict, _ in found if verdict == "fix"]) == (0, [])


def test_a_file_in_place_of_an_id_is_answered_with_what_to_write(capsys, monkeypatch):
    monkeypatch.chdir(Path(__file__).parent)
    assert main(["check-env", "broken_environments.py"]) == 2
    told = capsys.readouterr().err
    assert "broken_environments.py is a file; name what makes an environment: srl check-env" in told
    assert "srl check-env broken_environments:Good" in told


@pytest.mark.usefixtures("in_this_process")
def test_a_broken_promise_is_placed_in_its_episode(capsys):
    code, found = checked(capsys, f"{MODULE}:LeavesBoundsInItsThirdEpisode")
    assert code == 1
    told = next(text for check, _, text in found if check == "results")
    assert told.startswith("step 2 of episode 3: observation is outside its space")


def test_an_id_that_its_module_registers_is_found(capsys):
    code, _ = checked(capsys, f"{MODULE}:Registered-v0")
    assert code == 0


@pytest.mark.parametrize(
    ("space", "low", "high"),
    [
        (spaces.Box(20.0, 50.0, (2,)), 20, 50),
        (spaces.Box(20.0, np.inf, (2,)), 20, 40),
        (spaces.Box(-np.inf, -30.0, (2,)), -50, -30),
        (spaces.Box(-np.inf, np.inf, (2,)), -10, 10),
        (spaces.Box(-1.0, 1.0, ()), -1, 1),
    ],
)
def test_actions_are_drawn_within_all_finite_bounds(space, low, high):
    rng = np.random.default_rng(0)
    drawn = np.array([draw_action(space, None, rng) for _ in range(100)])
    assert (drawn >= low).all()
    assert (drawn <= high).all()
    assert np.ptp(drawn) > 0.8 * (high - low)
    assert all(space.contains(np.asarray(each, np.float32)) for each in drawn)
