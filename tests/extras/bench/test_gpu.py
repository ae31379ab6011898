"""`srl bench gpu`, as far as it goes without one."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from srl.api.cli import main
from srl.extras.bench.gpu_load import GpuLoad, gpu_names
from srl.extras.bench.gpu_rows import ROWS
from srl.extras.bench.train import PlanSide

SMALL = ["--num-envs", "4", "--algorithm.unroll-length", "8", "--algorithm.epochs", "1"]
SMI = """#!/bin/sh
case "$*" in
  *name*) echo "NVIDIA H100" ;;
  *) printf '10\\n30\\n[N/A]\\n' ;;
esac
"""
ROOT = Path(__file__).parents[3]
TABLE = [sys.executable, str(ROOT / "tools" / "gpu_table.py")]
PLACE = "# Tuning\n\n<!-- srl bench gpu -->\n<!-- end of srl bench gpu -->\n\nMore.\n"


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """A command in the place of nvidia-smi, which reports as that does."""
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


@pytest.fixture
def documents(tmp_path):
    """A folder with the place of the table."""
    (tmp_path / "docs" / "results").mkdir(parents=True)
    (tmp_path / "docs" / "tuning.md").write_text(PLACE)
    return tmp_path / "docs"


def test_a_row_has_its_figures_and_all_others_are_marked_as_never_run(tmp_path, capsys):
    words = ["--rows", "cheetah,cartpole,breakout", "--minutes", "0.5", "--out", str(tmp_path)]
    words += ["--algorithm.minibatches", "2", "--json"]
    assert main(["bench", "gpu", *words, *SMALL]) == 2
    assert "JAX has no GPU here; --on-cpu measures on the CPU" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert main(["bench", "gpu", "--on-cpu", *words, *SMALL, "--plan", "nosuch"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["name"] for line in lines] == ["cheetah", "cartpole", "breakout"]
    assert all("there is no plan 'nosuch'" in line["state"] for line in lines)
    kept = json.loads((tmp_path / "gpu.json").read_text())
    assert kept["rows"] == lines
    assert kept["machine"]["computes_on"] == "CPU"


def test_rows_of_an_earlier_run_stay_and_those_of_another_machine_are_refused(tmp_path, capsys):
    words = ["bench", "gpu", "--on-cpu", "--minutes", "0.01", "--out", str(tmp_path), "--rows"]
    assert main([*words, "cheetah"]) == main([*words, "copy-hide"]) == 0
    file = tmp_path / "gpu.json"
    kept = json.loads(file.read_text())
    assert [row["name"] for row in kept["rows"]] == ["cheetah", "copy-hide"]
    file.write_text(json.dumps({**kept, "machine": {**kept["machine"], "jax": "0.1"}}))
    assert main([*words, "cartpole"]) == 2
    assert "is of another machine or version" in capsys.readouterr().err
    assert len(json.loads(file.read_text())["rows"]) == 2


def test_rows_that_need_longer_are_cut_off_and_those_after_the_minutes_are_not_run(tmp_path):
    names = ["placement", "act-hide", "act-cheetah", "copy-hide", "copy-pong"]
    words = ["--rows", ",".join(names), "--minutes", "0.01", "--out", str(tmp_path)]
    assert main(["bench", "gpu", "--on-cpu", *words]) == 0  # a row may take a quarter
    states = [row["state"] for row in json.loads((tmp_path / "gpu.json").read_text())["rows"]]
    cut = sum(state == "cut off: it needs more than 0 s" for state in states)
    assert 1 <= cut <= 4  # fewer on a loaded machine, where ends take longer
    assert states[cut:] == ["not run"] * (5 - cut)


@pytest.mark.slow
def test_trainings_checks_and_calls_are_measured_as_on_a_gpu_in_a_minute_or_two(tmp_path, fake_gpu):
    names = ["placement", "cheetah", "cheetah-act-cpu", "cartpole", "act-cheetah", "copy-pong"]
    words = ["--rows", ",".join(names), "--minutes", "20", "--out", str(tmp_path)]
    words += ["--num-envs", "8", "--algorithm.unroll-length", "8"]
    with subprocess.Popen([sys.executable, "-m", "srl", "bench", "gpu", *words]) as bench:
        assert bench.wait() == 0
    assert not (fake_gpu / f"{bench.pid}.json").exists()  # it would keep memory from the runs
    rows = {row["name"]: row for row in json.loads((tmp_path / "gpu.json").read_text())["rows"]}
    assert {name: row["state"] for name, row in rows.items()} == dict.fromkeys(names, "run")
    assert rows["placement"]["value"] == "holds"
    cheetah = rows["cheetah"]
    assert cheetah["value"] > 0
    assert cheetah["pool"] > 0
    assert cheetah["first_report_seconds"] > cheetah["compile_seconds"] > 0
    assert (cheetah["plan"], cheetah["learns_on"]) == ("threads", "GPU")
    assert len(rows["act-cheetah"]["value"]) == 3
    table = (tmp_path / "gpu.md").read_text()
    assert all(re.search(rf"^\| `{name}` \|", table, re.MULTILINE) for name in names)


def test_the_documents_hold_the_table_with_rows_that_were_never_run(tmp_path, documents):
    command = [*TABLE, "--docs", str(documents)]
    subprocess.run(command, check=True)
    page = (documents / "tuning.md").read_text()
    assert "No machine with a GPU has run them yet." in page
    assert page.count("| not run |") == len(ROWS)
    assert page.endswith("\n\nMore.\n")
    measured = {"gpus": ["NVIDIA H100"], "computes_on": "GPU", "cores": 16, "jax": "0.11.2"}
    measured |= {"processor": "one", "srl": "0.1.0", "date": "2026-11-30"}
    row = {"name": "hide", "state": "run", "value": 12345.6, "unit": "env steps/s", "pool": 24691.2}
    results = {"machine": measured, "rows": [{**row, "gpu_load": 71.0, "text": "as it was"}]}
    (tmp_path / "gpu.json").write_text(json.dumps(results))
    subprocess.run([*TABLE, str(tmp_path), "--docs", str(documents)], check=True)
    page = (documents / "tuning.md").read_text()
    assert "NVIDIA H100; 16 cores" in page
    text = next(row.text for row in ROWS if row.name == "hide")
    assert f"| `hide` | {text} | 12,346 env steps/s | 50 % | 71 % |" in page
    assert page.count("| not run |") == len(ROWS) - 1
    assert json.loads((documents / "results" / "gpu.json").read_text())["machine"] == measured


def test_figures_of_a_cpu_do_not_get_into_the_documents(tmp_path, documents):
    results = {"machine": {"computes_on": "CPU"}, "rows": []}
    (tmp_path / "gpu.json").write_text(json.dumps(results))
    command = [*TABLE, str(tmp_path), "--docs", str(documents)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "was measured on a CPU" in done.stderr
    assert (documents / "tuning.md").read_text() == PLACE


@pytest.mark.usefixtures("smi")
def test_the_load_is_the_mean_of_what_nvidia_smi_reports():
    load = GpuLoad()
    load._thread.join()  # the command has ended
    assert load.mean(0.0, math.inf) == 20
    assert load.mean(0.0, 0.0) is None
    load.close()
    assert gpu_names() == ["NVIDIA H100"]


def test_a_machine_without_the_command_has_no_load_and_no_names(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    load = GpuLoad()
    load.close()
    assert load.mean(0.0, math.inf) is None
    assert gpu_names() == []


def test_a_run_is_timed_until_its_return_is_reached():
    seconds, report = PlanSide("native:CartPole-v1", SMALL).until(
        lambda report: (report["episode_return"] or 0) >= 5
    )
    assert report["episode_return"] >= 5
    assert seconds > 0
