"""The documents: the site is built, links lead somewhere, and the first steps run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from pages import DOCS, PAGES, ROOT


def test_the_site_is_built_and_no_link_leads_nowhere(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "reference" / "python.html").stat().st_size > 20_000


def test_links_of_the_readme_lead_somewhere():
    text = (ROOT / "README.md").read_text()
    targets = re.findall(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)", text)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_files_of_tests_that_a_page_names_are_there():
    named = [
        path for page in PAGES for path in re.findall(r"`(tests/[\w/]+\.py)`", page.read_text())
    ]
    assert len(named) > 30
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_environment_in_jax_that_a_page_shows_is_the_file_that_it_names():
    (shown,) = re.findall(
        r"^```python\n(.*?)^```", (DOCS / "jax_environments.md").read_text(), re.M | re.S
    )
    assert shown in (DOCS / "corridor.py").read_text()


def files_of(page: Path) -> dict[str, str]:
    """The Python files that a page shows whole, by the name in their first line."""
    blocks = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", page.read_text(), re.M | re.S)
    return dict(blocks)


def test_the_first_steps_run_as_they_are_written(tmp_path):
    files = files_of(DOCS / "getting_started.md")
    assert files.keys() == {"my_experiment.py", "my_simulator.py", "corridor.py"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for words in (
        ["check-env", "my_simulator:Corridor", "--seconds", "2"],
        ["run", "corridor.py", "--env-steps", "512", "--run-dir", "corridor"],
        ["run", "my_experiment.py", "--env-steps", "2048", "--run-dir", "mine"],
        ["eval", "mine", "--episodes", "2"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "srl", *words], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
