"""What a run logs, and what of it the terminal shows."""

import io
import logging

import pytest

from srl.record.run_record import RunFolder
from srl.run.terminal import logging_to


@pytest.fixture
def terminal():
    """What a handler shows that a library has given the root logger, as Brax's import does."""
    shown = io.StringIO()
    handler = logging.StreamHandler(shown)
    logging.getLogger().addHandler(handler)
    yield shown
    logging.getLogger().removeHandler(handler)


def test_a_librarys_handler_does_not_show_again_what_the_display_shows(tmp_path, terminal, capsys):
    folder = RunFolder(tmp_path)
    folder.log("trainer").parent.mkdir()
    ours, others = logging.getLogger("srl.launch.local"), logging.getLogger("brax")
    with logging_to(folder, "trainer"):
        ours.info("update 3")
        ours.warning("the disk is nearly full")
        others.warning("no GPU")
    log = folder.log("trainer").read_text()
    assert terminal.getvalue().splitlines() == ["the disk is nearly full", "no GPU"]
    assert capsys.readouterr().err == ""
    assert all(text in log for text in ("update 3", "the disk is nearly full", "no GPU"))


def test_after_a_run_the_handler_shows_all_records_again(tmp_path, terminal):
    with logging_to(RunFolder(tmp_path), "trainer"):
        pass
    ours = logging.getLogger("srl.launch.local")
    ours.setLevel(logging.INFO)
    ours.info("update 3")
    ours.setLevel(logging.NOTSET)
    assert terminal.getvalue() == "update 3\n"
