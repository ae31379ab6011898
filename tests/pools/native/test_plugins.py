"""Environments from libraries that are compiled against the installed srl."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import srl
from srl import RunError, UserError, make_pool
from srl.api.cli import main
from srl.system.child_process import program_command

ROOT = Path(__file__).parents[3]


def build(source: Path, folder: Path, *settings: str) -> Path:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    python = f"-DPython_EXECUTABLE={sys.executable}"
    for command in (
        ["cmake", "-G", "Ninja", "-S", source, "-B", folder, python, *settings],
        ["cmake", "--build", folder],
    ):
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "PATH": path}
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    """The library of the documentation's example."""
    return build(ROOT / "docs" / "plugin_example", tmp_path_factory.mktemp("walk")) / "libwalk.so"


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """The folder of the libraries made for these tests."""
    folder = tmp_path_factory.mktemp("plugins")
    return build(Path(__file__).parent / "plugins", folder)


def rollout(pool, steps):
    """Everything that random steps give, and the pool's state after half of them."""
    rng, space = np.random.default_rng(0), pool.specs.action
    slots = pool.num_envs * len(pool.specs.agents)
    counts = getattr(space, "nvec", None)
    rows, state = [pool.reset(seed=7)], b""
    for t in range(steps):
        if t == steps // 2:
            state = pool.save()
        if counts is None:
            actions = rng.integers(0, space.n, slots, np.int32)
        else:
            actions = rng.integers(0, counts, (slots, len(counts)), np.int32)
        rows.append(pool.step(actions))
    return rows, state


def assert_same(ours, theirs, tolerance=0.0):
    for mine, other in zip(ours, theirs, strict=True):
        for name, a, b in zip(mine._fields, mine, other, strict=True):
            if isinstance(a, dict):
                for key in a:
                    np.testing.assert_array_equal(a[key], b[key], err_msg=key)
            else:
                np.testing.assert_allclose(a, b, rtol=0, atol=tolerance, err_msg=name)


def test_the_documented_example_walks(walk):
    with make_pool(f"native:{walk}:Walk-v0", num_envs=3, goal=4) as pool:
        assert pool.specs.statistics == ("rightmost",)
        assert pool.specs.max_episode_steps == 200
        start = pool.reset(seed=0).observation[:, 0].copy()
        assert set(start) <= {-1, 0, 1}
        for t in range(1, 3):
            timestep = pool.step(np.array([1, 0, 1], np.int32))
            np.testing.assert_array_equal(timestep.observation[:, 0] - start, [t, -t, t])
        while not timestep.terminated[0]:
            timestep = pool.step(np.ones(3, np.int32))
        assert timestep.observation[0, 0] == timestep.statistics[0, 0] == 4
        assert timestep.reward[0] == timestep.episode_return[0] == 1
        assert timestep.episode_length[0] == 4 - start[0]


def test_an_environment_in_a_library_is_the_same_as_within_srl(libraries):
    sizes = {"num_envs": 20, "threads": 2}
    with (
        make_pool("native:CartPole-v1", **sizes) as inside,
        make_pool(f"native:{libraries}/libcartpole.so:CartPole-v1", **sizes) as outside,
    ):
        assert outside.specs == inside.specs
        ours, _ = rollout(outside, 300)
        theirs, _ = rollout(inside, 300)
        assert_same(ours, theirs, tolerance=1e-6)  # their sines differ in the last bit
        outside.inject(3, "state", [0.1, 0.2, 0.03, 0.04])
        assert outside.inspect(3)["state"].tolist() == [0.1, 0.2, 0.03, 0.04]
        with pytest.raises(UserError, match="takes 'state' of 4 numbers, not 'mood' of 1"):
            outside.inject(3, "mood", [1])


@pytest.mark.parametrize("name", ["cartpole.so:CartPole-v1", "counter.so:Counter-v0"])
def test_a_saved_pool_of_a_library_goes_on_bit_by_bit(libraries, name):
    with make_pool(f"native:{libraries}/lib{name}", num_envs=5, threads=2) as pool:
        rows, state = rollout(pool, 100)
        end = pool.save()
        pool.restore(state)
        rng = np.random.default_rng(0)
        again = []
        for t in range(100):
            if name.startswith("cartpole"):
                actions = rng.integers(0, 2, 5, np.int32)
            else:
                actions = rng.integers(0, [2, 3], (10, 2), np.int32)
            if t >= 50:
                again.append(pool.step(actions))
        assert_same(again, rows[51:])
        assert pool.save() == end


def test_an_environment_in_plain_c_plays(libraries):
    with make_pool(f"native:{libraries}/libcounter.so:Counter-v0", num_envs=2, limit=6) as pool:
        assert pool.specs.agents == ("slow", "fast")
        assert pool.specs.action.nvec.tolist() == [2, 3]
        noise = [pool.reset(seed=0).observation["noise"]]
        for count in (0, 2, 4, 6):
            assert not noise[-1][0] == noise[-1][2]
            actions = np.tile(np.array([1, min(count, 1)], np.int32), (4, 1))
            timestep = pool.step(actions)
            noise.append(timestep.observation["noise"])
            assert timestep.observation["count"][:, 0].tolist() == [count // 2, count] * 2
        assert timestep.terminated.all()
        assert timestep.statistics[:, 0].tolist() == [9, 9]
        assert timestep.reward.tolist() == [3, 6, 3, 6]
        assert len({float(n[0]) for n in noise}) == 5
        with make_pool("native:CartPole-v1", num_envs=2) as other:
            other.reset(seed=0)
            drawn = 0.05 * (2 * noise[0][0] - 1)  # the same first number of the same stream
            np.testing.assert_allclose(other.inspect(0)["state"][0], drawn, rtol=0, atol=1e-8)
        assert pool.inspect(0) == {}
        assert pool.model(0) == b""
        with pytest.raises(UserError, match="no number 'count' that can be set"):
            pool.inject(0, "count", [1])


def test_a_library_may_be_loaded_often_and_from_where_it_lies(walk, monkeypatch, tmp_path):
    monkeypatch.chdir(walk.parent)
    monkeypatch.setenv("HOME", str(walk.parent.parent))
    names = ["libwalk.so", "./libwalk.so", f"~/{walk.parent.name}/libwalk.so", str(walk)]
    pools = [make_pool(f"native:{name}:Walk-v0") for name in names]
    assert len({pool.name for pool in pools}) == 1
    for pool in pools:
        pool.reset(seed=0)
        pool.close()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"no file libwalk\.so in .* or on Python's module path"):
        make_pool("native:libwalk.so:Walk-v0")
    monkeypatch.syspath_prepend(str(walk.parent))
    make_pool("native:libwalk.so:Walk-v0").close()


def test_two_libraries_with_the_same_names_stay_apart(libraries, tmp_path):
    copy = shutil.copy(libraries / "libfaulty.so", tmp_path / "libcopy.so")
    with (
        make_pool(f"native:{libraries}/libfaulty.so:Faulty-v0") as one,
        make_pool(f"native:{copy}:Faulty-v0", fault="step") as other,
    ):
        one.reset(), other.reset()
        one.step(np.zeros(1, np.int32))
        with pytest.raises(RunError, match=r"libcopy\.so:Faulty-v0: environment 0: broke in step"):
            other.step(np.zeros(1, np.int32))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("missing.so:Walk-v0", r"there is no file .*missing\.so$"),
        ("CMakeCache.txt:Walk-v0", r"cannot be loaded as a shared library: .*invalid ELF header"),
        ("libnothing.so:Walk-v0", r"no function srl_plugin; write SRL_EXPORT_PLUGIN"),
        ("libWRONG_MAJOR.so:Counter-v0", r"built for version 2\.0 .* this srl has 1\.0"),
        ("libNEWER_MINOR.so:Counter-v0", r"built for version 1\.1 .* this srl has 1\.0"),
        ("libWITHOUT_STEP.so:Counter-v0", r"environment 0 \(Counter-v0\) lacks functions"),
        ("libWITHOUT_TYPES.so:Counter-v0", "has no environments"),
        ("libfaulty.so:Fualty-v0", r"no environment 'Fualty-v0'; it has Faulty-v0, Other-v0: .*"),
        ("libfaulty.so", r"needs an environment's name; it has Faulty-v0, Other-v0: "),
        ("libfaulty.so:", r"needs an environment's name; it has"),
    ],
)
def test_what_is_no_library_of_environments_is_told(libraries, name, told):
    for _ in range(2):  # the second time too
        with pytest.raises(UserError, match=told):
            make_pool(f"native:{libraries}/{name}")


@pytest.mark.parametrize(
    ("library", "told"),
    [
        ("NULL_AGENT", "its specs have a null name"),
        ("NULL_FIELD", "its observation has a field whose name is null"),
    ],
)
def test_specs_with_a_null_name_are_told(libraries, library, told):
    with pytest.raises(RunError, match=told):
        make_pool(f"native:{libraries}/lib{library}.so:Counter-v0")


@pytest.mark.parametrize(
    ("specs", "told"),
    [
        ("agentless", "its specs name no agent"),
        ("flat", "its observation has a shape with a side below 1"),
        ("unbounded", "its observation needs one bound for all elements or one for each"),
        ("upside-down", "its observation has a lower bound above the upper one"),
        ("twins", "its agents have one name twice"),
        ("doubled", "its observation's fields have one name twice"),
        ("huge", "its observation has a bound that its dtype does not hold"),
        ("wide", "its action space is discrete and must be int32"),
        ("typeless", "its action space has no dtype"),
    ],
)
def test_specs_that_make_no_sense_are_told(libraries, specs, told):
    with pytest.raises(RunError, match=told):
        make_pool(f"native:{libraries}/libfaulty.so:Faulty-v0", specs=specs)


def test_what_an_environment_of_a_library_throws_is_told(libraries):
    name = f"native:{libraries}/libfaulty.so:Faulty-v0"
    with pytest.raises(UserError, match="observation '' is float64, but pools give float32"):
        make_pool(name, specs="double")
    with pytest.raises(UserError, match="option 'fault' is an integer, expected a text"):
        make_pool(name, fault=3)
    with pytest.raises(RunError, match="the licence has expired"):
        make_pool(name, fault="make")
    with pytest.raises(RunError, match=r"x{1023}$"):
        make_pool(name, fault="long")
    for fault, told in [
        ("reset", "environment 0: broke in reset"),
        ("step", "environment 0: broke in step"),
        ("number", "environment 0: it threw something that is no std::exception"),
        ("write", "environment 0: broke in write"),
        ("nan", "not finite as observation"),
    ]:
        with make_pool(name, num_envs=2, threads=2, fault=fault) as pool:
            with pytest.raises(RunError, match=told):  # noqa: PT012
                pool.reset()
                pool.step(np.zeros(2, np.int32))
    with make_pool(name, fault="save") as pool, pytest.raises(RunError, match="broke in save"):
        pool.save()
    with make_pool(name, fault="load") as pool, pytest.raises(RunError, match="state is too long"):
        pool.restore(pool.save())


@pytest.mark.parametrize(
    ("plan", "seconds", "told"),
    [
        ("threads", 2, "the training has shown no progress for 2 s: it waits for environments "),
        pytest.param(
            *("inline", 8, "actors-0 has shown no progress; it is started again"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_hangs_within_a_compiled_unroll_is_named(libraries, tmp_path, plan, seconds, told):
    name, terminal = f"native:{libraries}/libfaulty.so:Faulty-v0", tmp_path / "terminal"
    words = ["--env.fault", "hang", "--num-envs", "8", "--algorithm.unroll-length", "32"]
    words += ["--heartbeat-seconds", str(seconds), "--plan", plan]
    command = program_command("srl", "run", name, *words, "--run-dir", str(tmp_path / "run"))
    with terminal.open("wb") as log:
        run = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline, first = time.monotonic() + 120, "\nenv steps 256/"  # which a busy machine delays
        while terminal.read_text().rpartition(told)[0].count(first) == 0:
            assert run.poll() is None, terminal.read_text()
            assert time.monotonic() < deadline, terminal.read_text()
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        assert run.wait(60) == 130, terminal.read_text()
    finally:
        run.kill()
        run.wait()


def test_a_library_that_was_built_again_is_not_mixed_with_the_old(libraries, tmp_path):
    copy = tmp_path / "libagain.so"
    shutil.copy(libraries / "libcounter.so", copy)
    make_pool(f"native:{copy}:Counter-v0").close()
    copy.unlink()
    shutil.copy(libraries / "libfaulty.so", copy)
    with pytest.raises(UserError, match="was built again after this process loaded it"):
        make_pool(f"native:{copy}:Counter-v0")


def test_the_command_line_takes_a_library(walk, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(walk.parent)
    words = ["--env", "native:libwalk.so:Walk-v0", "--goal", "20", "--seconds", "0.1"]
    assert main(["bench", "pool", *words]) == 0
    assert "libwalk.so:Walk-v0" in capsys.readouterr().out
    run = ["native:libwalk.so:Walk-v0", "--run-dir", str(tmp_path / "run")]
    assert main(["run", *run, "--updates", "2", "--num-envs", "4"]) == 0
    monkeypatch.chdir(tmp_path)  # the run knows where the library is
    assert main(["eval", str(tmp_path / "run"), "--episodes", "2"]) == 0
    assert main(["run", "native:libwalk.so:Walk-v0", "--dry-run"]) == 0
    capsys.readouterr()


def test_the_headers_are_found_without_loading_anything_heavy():
    code = (
        "import sys, srl; print(srl.get_include()); "
        "assert not {'jax', 'numpy', 'gymnasium'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == srl.get_include()
    assert (Path(srl.get_include()) / "srl" / "environment.h").is_file()
