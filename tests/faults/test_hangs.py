"""An environment that hangs before the first update is named, and one Ctrl-C ends its run."""

import signal

import pytest
from real_runs import RealRun

INLINE = ["--plan", "inline", "--heartbeat-seconds", 8]
DECOUPLED = ["--plan", "decoupled", "--heartbeat-seconds", 8]
REPLICATED = ["--plan", "replicated", "--plan.learners.replicas", 2]


def hanging(path, *words):
    """A run whose environments stay in their first step."""
    (path / "hang").touch()
    return RealRun(path, *words)


@pytest.mark.parametrize("words", [[], pytest.param(["--plan", "threads"], marks=pytest.mark.slow)])
def test_a_run_in_one_process_names_what_hangs_before_its_first_update(tmp_path, words):
    with hanging(tmp_path, *words, "--heartbeat-seconds", 2) as run:
        run.wait(lambda: "the training has shown no progress for 2 s: it waits for env" in run.told)
        run.wait(lambda: "in brood" in run.told)
        run.wait(lambda: "in brood" in (run.folder / "logs" / "trainer.log").read_text())
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 130, run.told
        assert "ended before this update: no progress for" in run.told
        assert "there is no checkpoint yet" in run.told


@pytest.mark.parametrize("words", [INLINE, pytest.param(DECOUPLED, marks=pytest.mark.slow)])
def test_an_actor_that_hangs_is_named_and_started_again_and_one_interrupt_ends_the_run(
    tmp_path, words
):
    with hanging(tmp_path, *words) as run:
        run.wait(lambda: "actors-0 has shown no progress; it is started again" in run.told)
        assert "in brood" in run.told
        assert "in brood" in (run.folder / "logs" / "controller.log").read_text()
        (tmp_path / "hangs").unlink()
        run.wait((tmp_path / "hangs").exists)
        assert_ends(run)
        assert run.checkpoint() == 0


def test_one_interrupt_ends_learners_whose_first_update_never_comes(tmp_path):
    with hanging(tmp_path, *REPLICATED) as run:
        run.wait(lambda: "first steps  learners " in run.told)
        run.wait((tmp_path / "hangs").exists)
        assert_ends(run)
        assert "in brood" in run.told
        assert run.checkpoint() == -1


def assert_ends(run):
    """An interrupt ends a run in whose update nothing goes on."""
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 130, run.told
    assert "the update in progress is not waited for" in run.told
