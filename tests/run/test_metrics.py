import json
import math

import numpy as np
import pytest

from srl.core.errors import RunError
from srl.run.metrics import MetricsWriter, newest_first, number, read_metrics


def report(step, **values):
    return {"env_steps": step, "episode_return": float(step), **values}


def write(folder, steps, resume_at=None):
    writer = MetricsWriter(folder, resume_at)
    for step in steps:
        writer.write(report(step))
    writer.close()


def test_a_line_is_flat_json_with_null_for_what_is_not_finite(tmp_path):
    writer = MetricsWriter(tmp_path)
    values = {"a": math.nan, "b": np.float32(0.5), "c": np.int64(3), "d": math.inf, "e": None}
    writer.write(report(10, **values))
    (line,) = read_metrics(tmp_path)
    time = line.pop("time")
    assert time > 1e9
    wanted = {"a": None, "b": 0.5, "c": 3, "d": None, "e": None}
    assert line == {"env_steps": 10, "episode_return": 10.0, **wanted}
    writer.close()


def test_a_resumed_curve_is_that_of_a_run_never_stopped(tmp_path):
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    write(tmp_path / "whole", [10, 20, 30, 40])
    write(tmp_path / "parts", [10, 20, 30])
    write(tmp_path / "parts", [30, 40], resume_at=25)
    for folder in (tmp_path / "whole", tmp_path / "parts"):
        assert [line["env_steps"] for line in read_metrics(folder)] == [10, 20, 30, 40]


def test_reports_can_be_read_from_the_last_one_backwards(tmp_path):
    write(tmp_path, [10, 20])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write("broken\n")
    write(tmp_path, [30])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"env_steps": 4')
    assert [line["env_steps"] for line in newest_first(tmp_path)] == [30, 20, 10]


def test_a_line_at_the_checkpoint_stays(tmp_path):
    write(tmp_path, [10, 20])
    write(tmp_path, [30], resume_at=20)
    assert [line["env_steps"] for line in read_metrics(tmp_path)] == [10, 20, 30]


@pytest.mark.parametrize("torn", ['{"env_steps": 15, "epi', '{"env_steps": 16}', "\x00\x00"])
def test_a_torn_last_line_leaves_the_metrics_on_resume_and_is_kept(tmp_path, torn):
    write(tmp_path, [10])
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + torn)
    write(tmp_path, [20], resume_at=15)
    steps = [json.loads(line)["env_steps"] for line in path.read_text().splitlines()]
    assert steps == [10, 20]
    assert (tmp_path / "metrics.reverted.jsonl").read_text() == torn + "\n"


def test_reports_after_the_checkpoint_are_kept_each_time_that_a_run_returns_to_it(tmp_path):
    write(tmp_path, [10, 20, 30])
    write(tmp_path, [20, 30, 40], resume_at=10)
    write(tmp_path, [30], resume_at=20)
    reverted = (tmp_path / "metrics.reverted.jsonl").read_text().splitlines()
    assert [json.loads(line)["env_steps"] for line in reverted] == [20, 30, 30, 40]
    assert [line["env_steps"] for line in read_metrics(tmp_path)] == [10, 20, 30]


BROKEN = [
    "oops",
    "",
    "[1]",
    "{}",
    '{"env_steps": "x"}',
    '{"env_steps": 1e999}',
    "[" * 100_000,
    "\xff",
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_line_in_the_middle_costs_no_report_on_resume(tmp_path, broken, caplog):
    write(tmp_path, [10, 20, 30, 40])
    path = tmp_path / "metrics.jsonl"
    lines = path.read_bytes().split(b"\n")
    lines.insert(1, broken.encode("latin-1"))
    path.write_bytes(b"\n".join(lines))
    write(tmp_path, [50], resume_at=35)
    assert [line["env_steps"] for line in read_metrics(tmp_path)] == [10, 20, 30, 50]
    assert path.read_bytes().split(b"\n")[1] == broken.encode("latin-1")
    assert "line 2 is broken and stays" in caplog.text


def test_a_last_report_without_a_line_end_stays_on_resume(tmp_path):
    write(tmp_path, [10, 20])
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    write(tmp_path, [30], resume_at=20)
    assert [line["env_steps"] for line in read_metrics(tmp_path)] == [10, 20, 30]


def test_resuming_before_the_first_report_begins_anew(tmp_path):
    write(tmp_path, [], resume_at=0)
    write(tmp_path, [10], resume_at=0)
    write(tmp_path, [10], resume_at=0)
    assert len(read_metrics(tmp_path)) == 1


def test_a_file_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(RunError, match=r"cannot write metrics to .*metrics.jsonl: Is a directory"):
        MetricsWriter(tmp_path)


@pytest.mark.parametrize("value", [None, "high", True, 10**400, math.nan])
def test_a_value_that_is_no_number_counts_as_nan(value):
    assert math.isnan(number(value))
    assert number(3) == 3.0
