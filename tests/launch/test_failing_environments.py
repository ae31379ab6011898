"""What is shown of a run whose environment is at fault."""

import subprocess
import sys
from pathlib import Path

import pytest

from srl.api.cli import main
from srl.system import child_process

HERE = str(Path(__file__).parent)
SCHEMAS = ["--num-envs", "4"]


def run(tmp_path, env, *words):
    """Runs `srl run` to its end; the process, and the words of its log."""
    updates = [] if "--updates" in words else ["--updates", "1"]
    command = [sys.executable, "-m", "srl", "run", env, *SCHEMAS, *updates, *words]
    folder = tmp_path / "run"
    done = subprocess.run(
        [*command, "--run-dir", str(folder)],
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done, (folder / "logs" / "trainer.log")


def assert_shown(done, log, env):
    """The exception, with the frames of the environment and of nothing else."""
    shown = done.stdout + done.stderr
    assert done.returncode == 1
    assert f"failing_envs:{env}: environment 0 raised KeyError in step: 'joint_3'" in shown
    frames = [line for line in shown.splitlines() if line.startswith("  File ")]
    assert frames
    assert all("failing_envs.py" in frame for frame in frames)
    assert "in fail" in shown
    assert "in fail" in log.read_text()
    return shown


def test_an_exception_is_shown_with_the_environments_own_frames(tmp_path):
    done, log = run(tmp_path, "failing_envs:RaisesLater", "--updates", "9")
    assert_shown(done, log, "RaisesLater")
    assert "; once its cause is fixed, `srl resume" in done.stderr


def test_the_traceback_of_an_actors_exception_that_comes_again_is_shown_once(tmp_path):
    one = ("--plan", "inline", "--plan.actors.replicas", "1")
    done, log = run(tmp_path, "failing_envs:Raises", *one)
    shown = assert_shown(done, log.with_name("actors-0.log"), "Raises")
    assert "(restart 2 of 2 in a row)" in shown
    assert str(log.with_name("actors-0.log")) in shown
    assert shown.count("in fail\n") == 1
    assert log.with_name("controller.log").read_text().count("in fail\n") >= 3


def test_an_environment_that_aborts_the_process_leaves_its_stack(tmp_path, capsys):
    done, log = run(tmp_path, "failing_envs:Aborts")
    assert done.returncode == -6
    lines = done.stderr.splitlines()
    start = lines.index("Fatal Python error: Aborted; it was here:")
    assert 'failing_envs.py", line' in lines[start + 1]
    assert "in fail" in lines[start + 1]
    assert "trainer failed; its log is" in lines[-2]
    assert "`--workers N` steps environments in separate processes" in lines[-1]
    assert "Fatal Python error: Aborted" in log.read_text()
    assert "in fail" in log.read_text()
    assert main(["top", str(tmp_path / "run")]) == 1
    assert "has failed: Fatal Python error: Aborted; its logs are in" in capsys.readouterr().out


def test_an_environment_that_exits_the_process_does_not_end_it_silently(tmp_path):
    done, log = run(tmp_path, "failing_envs:Exits")
    assert done.returncode == 3
    assert "the process was killed, or an environment ended it with exit()" in done.stderr
    assert "`--workers N`" in done.stderr
    assert "ended without a stack" in log.read_text()


def test_a_crash_in_a_worker_process_is_shown_with_the_environments_own_frames(tmp_path):
    done, _ = run(tmp_path, "failing_envs:Aborts", "--workers", "1")
    shown = done.stdout + done.stderr
    assert done.returncode == 1
    assert "Fatal Python error: Aborted; it was here:" in shown
    frames = [line for line in shown.splitlines() if line.startswith("  File ")]
    assert frames
    assert all("failing_envs.py" in frame for frame in frames)


DUMP = """{kind} 0x01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 359 in wait
  File "{srl}/workers/groups.py", line 88 in wait

{other} 0x02 (most recent call first):
  File "/home/me/walk.py", line 7 in step
  File "{srl}/pools/stepper.py", line 99 in advance
  File "{srl}/workers/groups.py", line 120 in _run
"""


@pytest.mark.parametrize("own", ["Current thread", "Thread"])
def test_of_a_hang_the_thread_that_steps_an_environment_is_shown(own):
    other = "Thread" if own == "Current thread" else "Current thread"
    srl = Path(child_process.__file__).parents[1]
    dump = DUMP.format(kind=own, other=other, srl=srl)
    shown = child_process.innermost_frames(dump)
    assert shown == '  File "/home/me/walk.py", line 7 in step'


def test_of_a_crash_while_garbage_is_collected_the_environments_frames_are_shown():
    srl = Path(child_process.__file__).parents[1]
    dump = DUMP.format(kind="Thread", other="Current thread", srl=srl).replace(
        '  File "/home', '  Garbage-collecting\n  File "/home'
    )
    shown = child_process.crash_place(f"Fatal Python error: Aborted\n\n{dump}")
    place = '  File "/home/me/walk.py", line 7 in step'
    assert shown == f"Fatal Python error: Aborted; it was here:\n{place}"


def test_an_interrupt_that_an_environment_raises_is_its_failure(tmp_path):
    done, _ = run(tmp_path, "failing_envs:Interrupts")
    assert done.returncode == 1
    assert "raise KeyboardInterrupt" in done.stderr
    assert "the run is in" not in done.stdout
