"""The fuzzers see what they run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("program", "least"), [("fuzz_decoders.py", 100), ("fuzz_ends.py", 500)])
def test_a_fuzzer_sees_the_coverage_of_installed_modules(program, least, tmp_path):
    pytest.importorskip("atheris")
    options = ["-runs=2000", "-seed=1", "-max_len=256", "-len_control=0", "-rss_limit_mb=4096"]
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name(program), *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    last = re.findall(r"cov: (\d+) ft: \d+ corp: (\d+)/", done.stderr)[-1]
    coverage, inputs = map(int, last)
    assert coverage > least
    assert inputs > 50
