import os
import subprocess
import sys

import pytest

from srl.api.cli import main

PROGRAM = """
import logging
from srl.system.compilation import keep_compiled_programs
logging.basicConfig(level=logging.WARNING, format="%(message)s")
keep_compiled_programs()
import jax
print(jax.jit(lambda x: (x * 3).sum())(jax.numpy.arange(5.0)))
"""


@pytest.fixture
def start(tmp_path):
    """Runs a small JAX program in a process with the given environment."""

    def run(**variables):
        named = ("JAX_COMPILATION_CACHE_DIR", "SRL_COMPILATION_CACHE")
        kept = {k: v for k, v in os.environ.items() if k not in named}
        environment = {**kept, "XDG_CACHE_HOME": str(tmp_path / "cache"), **variables}
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "30.0\n"), done.stderr
        return done.stderr

    return run


def programs(folder):
    return {path for path in folder.rglob("*-cache") if path.is_file()}


def test_a_second_start_compiles_nothing_anew_and_is_quiet(start, tmp_path):
    start()
    first = programs(tmp_path / "cache" / "srl" / "jax")
    assert first
    assert start() == ""
    assert programs(tmp_path / "cache") == first


def test_it_can_be_turned_off_or_moved(start, tmp_path):
    start(SRL_COMPILATION_CACHE="0")
    assert not (tmp_path / "cache").exists()
    start(SRL_COMPILATION_CACHE=str(tmp_path / "elsewhere"))
    assert programs(tmp_path / "elsewhere")
    start(JAX_COMPILATION_CACHE_DIR=str(tmp_path / "given"))
    assert programs(tmp_path / "given")
    assert not (tmp_path / "cache").exists()


def test_a_cache_that_cannot_be_written_only_warns(start, tmp_path):
    (tmp_path / "file").write_text("")
    assert "compiled programs are not kept" in start(XDG_CACHE_HOME=str(tmp_path / "file"))


def test_a_dry_run_that_compiles_leaves_a_run_nothing_to_compile(tmp_path):
    environment = {**os.environ, "SRL_COMPILATION_CACHE": str(tmp_path / "cache")}
    tiny = ["native:CartPole-v1", "--num-envs", "2", "--algorithm.unroll-length", "4"]

    def srl(*words):
        command = [sys.executable, "-m", "srl", "run", *tiny, *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    assert "\ncompiled in " in srl("--env-steps", "1e6", "--dry-run", "--compile")
    compiled = programs(tmp_path / "cache")
    assert compiled
    assert not (tmp_path / "runs").exists()
    srl("--env-steps", "24", "--seed", "5")
    assert programs(tmp_path / "cache") == compiled


def test_a_dry_run_that_compiles_needs_a_place_for_what_it_compiles(monkeypatch, capsys):
    monkeypatch.setenv("SRL_COMPILATION_CACHE", "0")
    assert main(["run", "native:CartPole-v1", "--dry-run", "--compile"]) == 2
    assert "SRL_COMPILATION_CACHE be a folder that can be written" in capsys.readouterr().err
