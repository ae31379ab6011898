"""The documents: the site is built, links lead somewhere, and the first steps run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pages import DOCS, PAGES, ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_is_built_and_no_link_leads_nowhere(site):
    assert (site / "reference" / "python.html").stat().st_size > 20_000


def test_the_home_of_the_site_shows_the_film_and_the_script(site):
    home = (site / "index.html").read_text()
    assert 'src="hide_and_seek.svg"' in home
    assert "srl.load" in re.sub(r"<[^>]*>", "", home)


def test_bars_in_code_within_tables_have_no_backslash(site):
    commands = re.sub(r"<[^>]*>", "", (site / "reference" / "commands.html").read_text())
    assert "FILE[:NAME] | ENV_ID" in commands
    assert r"\|" not in commands


def test_pages_of_the_site_ask_no_other_host_for_anything(site):
    loaded = r"<(?:script|img|link)[^>]*(?:src|href)=\"?(https?://[^\" >]*)"
    asked = {url for page in site.rglob("*.html") for url in re.findall(loaded, page.read_text())}
    assert asked == set()


def test_the_search_finds_pages_that_are_opened_as_files(site, tmp_path):
    driver_of = pytest.importorskip("selenium.webdriver", reason="selenium drives the browser")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if not program or not shutil.which("chromedriver"):
        pytest.skip("there is no Chromium with its driver: apt install chromium chromium-driver")
    options = driver_of.ChromeOptions()
    options.binary_location = program
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path}")
    browser = driver_of.Chrome(options, driver_of.ChromeService(shutil.which("chromedriver")))
    try:
        browser.get(f"{(site / 'index.html').as_uri()}?q=staleness")
        deadline = time.monotonic() + 60
        found = "return document.querySelectorAll('.md-search-result__item a').length"
        while not browser.execute_script(found) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert browser.execute_script(found) > 5
        for page in ("index.html", "getting_started.html", "results/gates.html"):
            browser.get((site / page).as_uri())
            cut = "return [...document.querySelectorAll('pre > code')].filter(e => "
            assert browser.execute_script(cut + "e.scrollWidth > e.clientWidth).length") == 0
    finally:
        browser.quit()


def test_links_of_the_readme_lead_somewhere():
    text = (ROOT / "README.md").read_text()
    targets = re.findall(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)|<img src=\"([^\"]+)\"", text)
    targets = [first or second for first, second in targets]
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
