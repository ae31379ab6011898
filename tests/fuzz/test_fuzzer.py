"""The fuzzer sees what it runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest


def test_the_fuzzer_sees_the_coverage_of_installed_modules(tmp_path):
    pytest.importorskip("atheris")
    program = Path(__file__).with_name("fuzz_streams.py")
    words = ["-runs=2000", "-seed=1", "-max_len=256", "-len_control=0", "-rss_limit_mb=4096"]
    done = subprocess.run(
        [sys.executable, program, *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    last = re.findall(r"cov: (\d+) ft: \d+ corp: (\d+)/", done.stderr)[-1]
    coverage, inputs = map(int, last)
    assert coverage > 300
    assert inputs > 50
