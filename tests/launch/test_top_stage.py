"""What `srl top` shows of a run that has no report yet."""

import subprocess
import time

from test_local import Program

from srl.system.child_process import program_command


def test_srl_top_shows_the_stage_of_a_run_that_has_no_report_yet(tmp_path):
    folder, shown = tmp_path / "run", tmp_path / "shown"
    with Program(folder, "updates=60", "pause=3600") as program, shown.open("wb") as output:
        program.wait_for("first steps")
        words = program_command("srl", "top", str(folder))
        top = subprocess.Popen(words, stdout=output, stderr=output)
        deadline = time.monotonic() + 60
        while "first steps" not in shown.read_text():
            assert top.poll() is None, shown.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        top.kill()
        top.wait()
