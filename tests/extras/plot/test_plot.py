import csv
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from srl.api.cli import main
from srl.config.experiment import load_experiment
from srl.core.errors import UserError
from srl.record.files import expect_place, write_output
from srl.record.ratings import Match, Payoff, write_ratings
from srl.run.folder import create_run
from srl.run.metrics import MetricsWriter

pytest.importorskip("matplotlib", reason="plots are drawn by matplotlib")


def make_run(path, words=(), target="native:HideAndSeek-v1", reports=40, steps=1000, **values):
    """A run's folder with so many reports; `values` are functions of (report, seed)."""
    resolved = load_experiment(target, list(words))
    folder = create_run(resolved, path)
    seed = resolved.experiment.seed
    values = {"episode_return": lambda i, seed: i + seed, **values}
    writer = MetricsWriter(folder.path)
    for i in range(1, reports + 1):
        numbers = {name: value(i, seed) for name, value in values.items()}
        writer.write({"env_steps": i * steps, "updates": i, "fps": 500.0, **numbers})
    writer.close()
    return folder.path


def plot(*words):
    return main(["plot", *map(str, words)])


def rows(file):
    with file.open() as lines:
        return list(csv.DictReader(lines))


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run")


# ---- curves ----


def test_a_picture_of_one_run_lies_in_its_folder_in_both_formats(run, capsys):
    assert plot(run) == 0
    assert (run / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (run / "plot.svg").read_text()
    assert f"1 run: {run}/plot.png, {run}/plot.svg" in capsys.readouterr().out


def test_pictures_of_several_runs_lie_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in range(2):
        make_run(tmp_path / "runs" / str(seed), ["--seed", str(seed)])
    assert plot("runs") == 0
    assert {"plot.png", "plot.svg"} <= {path.name for path in tmp_path.iterdir()}


def test_runs_can_be_compared_by_open_rl_benchmarks_keys_whatever_else_they_differ_in(tmp_path):
    for name, words in {
        "a": ["--tags", "old", "--threads", "1"],
        "b": ["--tags", "old", "--threads", "2", "--seed", "1"],
        "c": ["--tags", "new", "quick"],
    }.items():
        make_run(tmp_path / name, words, target="native:CartPole-v1")
    table, runs = tmp_path / "table.csv", [tmp_path / name for name in "abc"]
    assert plot(*runs, "--csv", table, "--by", "env_id", "--by", "exp_name", "--by", "tags") == 0
    found = {row["curve"]: row["runs"] for row in rows(table)}
    assert found == {"CartPole-v1, ppo, old": "2", "CartPole-v1, ppo, new quick": "1"}
    assert plot(*runs, "--csv", table, "--by", "exp_name") == 0
    assert {row["curve"]: row["runs"] for row in rows(table)} == {"ppo": "3"}


def test_a_key_that_no_run_has_is_told(run, capsys):
    assert plot(run, "--by", "exp") == 2
    told = capsys.readouterr().err
    assert "--by exp: no run has such a key; there are env_id, exp_name, tags, " in told


def test_how_runs_are_tracked_makes_no_other_curve(tmp_path):
    make_run(tmp_path / "a", ["--trackers", "prometheus", "--tracking.prometheus-port", "0"])
    make_run(tmp_path / "b", ["--seed", "1", "--tags", "mine"])
    table = tmp_path / "table.csv"
    assert plot(tmp_path / "a", tmp_path / "b", "--csv", table) == 0
    assert {row["curve"]: row["runs"] for row in rows(table)} == {"native-HideAndSeek-v1": "2"}


def test_runs_that_differ_in_the_seed_alone_are_one_curve_with_students_band(tmp_path):
    for seed in range(3):
        make_run(tmp_path / str(seed), ["--seed", str(seed)])
    table = tmp_path / "table.csv"
    assert plot(*(tmp_path / str(s) for s in range(3)), "--csv", table, "--smooth", 0) == 0
    found = rows(table)
    assert {row["curve"] for row in found} == {"native-HideAndSeek-v1"}
    assert {row["runs"] for row in found} == {"3"}
    for row in found:  # of values i, i + 1, i + 2: t(0.975, 2) = 4.303, s = 1
        mean, half = int(row["env_steps"]) / 1000 + 1, 4.303 / np.sqrt(3)
        assert float(row["episode_return"]) == pytest.approx(mean, rel=1e-3)
        assert float(row["episode_return low"]) == pytest.approx(mean - half, rel=1e-2)
        assert float(row["episode_return high"]) == pytest.approx(mean + half, rel=1e-2)


def test_curves_are_named_by_the_settings_in_which_they_differ(tmp_path):
    words = ["--algorithm.learning-rate", "0.01"]
    make_run(tmp_path / "a" / "0")
    make_run(tmp_path / "a" / "1", words)
    make_run(tmp_path / "a" / "2", [*words, "--seed", "1"])
    make_run(tmp_path / "a" / "3", ["--plan", "threads", *words])
    table = tmp_path / "table.csv"
    assert plot(tmp_path / "a", "--csv", table) == 0
    name = "native-HideAndSeek-v1"
    assert {row["curve"] for row in rows(table)} == {
        f"{name}, learning_rate=0.0003, plan=fused",
        f"{name}, learning_rate=0.01, plan=fused",
        f"{name}, learning_rate=0.01, plan=threads",
    }


def test_settings_can_be_ignored(tmp_path):
    make_run(tmp_path / "0", ["--env-steps", "40000"])
    make_run(tmp_path / "1", ["--env-steps", "80000", "--seed", "1"])
    table = tmp_path / "table.csv"
    for words, curves in (([], 2), (["--ignore", "env_*"], 1)):
        assert plot(tmp_path / "0", tmp_path / "1", "--csv", table, *words) == 0
        assert len({row["curve"] for row in rows(table)}) == curves


def test_the_mean_goes_on_over_the_runs_that_have_got_so_far(tmp_path):
    make_run(tmp_path / "a", ["--seed", "0"], reports=10)
    make_run(tmp_path / "b", ["--seed", "5"], reports=20)
    table = tmp_path / "table.csv"
    assert plot(tmp_path / "a", tmp_path / "b", "--csv", table, "--smooth", 0) == 0
    found = {
        int(row["updates"] if "updates" in row else row["env_steps"]): row for row in rows(table)
    }
    assert (found[10_000]["runs"], float(found[10_000]["episode_return"])) == ("2", 12.5)
    assert (found[11_000]["runs"], float(found[11_000]["episode_return"])) == ("1", 16)
    assert found[11_000]["episode_return low"] == ""


def test_smoothing_leaves_a_slope_as_it_is_and_takes_noise_away(tmp_path):
    run = make_run(
        tmp_path / "run", slope=lambda i, _: 3.0 * i, noise=lambda i, _: float((-1) ** i)
    )
    table = tmp_path / "table.csv"
    assert plot(run, "--csv", table, "--smooth", 0.2, "--keys", "slope", "--keys", "noise") == 0
    found = rows(table)
    for i, row in enumerate(found, 1):
        assert float(row["slope"]) == pytest.approx(3 * i, rel=1e-3)
    inner = [abs(float(row["noise"])) for row in found[5:-5]]
    assert max(inner) < 0.2


@pytest.mark.parametrize(("axis", "last"), [("env_steps", 40_000), ("updates", 40)])
def test_curves_are_drawn_against_what_one_asks_for(run, tmp_path, axis, last):
    assert plot(run, "--csv", tmp_path / "table.csv", "--x", axis) == 0
    assert float(rows(tmp_path / "table.csv")[-1][axis]) == last


def test_hours_leave_out_the_time_between_a_stop_and_a_resume(run, tmp_path):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines[20:]:
        line["time"] += 1e6
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert plot(run, "--csv", tmp_path / "table.csv", "--x", "hours") == 0
    assert float(rows(tmp_path / "table.csv")[-1]["hours"]) == pytest.approx(40_000 / 500 / 3600)


def test_a_table_has_no_more_rows_than_asked_for_and_ends_where_the_run_does(tmp_path):
    run = make_run(tmp_path / "run", reports=1000)
    assert plot(run, "--csv", tmp_path / "table.csv", "--rows", 20) == 0
    found = rows(tmp_path / "table.csv")
    assert len(found) == 20
    assert [int(found[i]["env_steps"]) for i in (0, -1)] == [1000, 1_000_000]
    assert (tmp_path / "table.csv").stat().st_size < 2000


def test_a_long_runs_drawing_is_no_larger_than_a_short_ones(tmp_path):
    sizes = []
    for reports in (300, 3000):
        run = make_run(tmp_path / str(reports), reports=reports)
        assert plot(run, "--out", tmp_path / f"{reports}.svg") == 0
        sizes.append((tmp_path / f"{reports}.svg").stat().st_size)
    assert sizes[1] < 1.3 * sizes[0]


# ---- which metrics ----


def shown(run, *words):
    """The metrics of the table."""
    table = run / "table.csv"
    assert plot(run, "--csv", table, *words) == 0
    return list(rows(table)[0])[3:]


def test_returns_statistics_and_fps_are_drawn_those_of_each_policy_if_there_are_several(tmp_path):
    returns = ("episode_return/a", "episode_return/b")
    past = ("past/a/episode_return", "past/a/episode_return/a", "past/version")
    names = (*returns, *past, "env/moves", "elo/a", "elo/games", "loss/value", "fps")
    run = make_run(tmp_path / "run", **dict.fromkeys(names, lambda i, _: i))
    assert shown(run) == [*returns, past[1], "elo/a", "env/moves", "fps"]
    assert shown(run, "--keys", "l*", "--keys", "env/*") == ["loss/value", "env/moves"]


def test_what_never_changes_is_left_out_and_told(tmp_path, capsys):
    run = make_run(tmp_path / "run", **{"env/diverged": lambda i, _: 0})
    assert shown(run) == ["episode_return"]
    told = capsys.readouterr().out
    assert "left out, as they never change (--keys shows them): env/diverged (0), fps (500)" in told
    assert shown(run, "--keys", "env/*") == ["env/diverged"]


def test_a_metric_that_begins_late_or_is_missing_now_and_then_is_drawn_where_it_is(tmp_path):
    run = make_run(tmp_path / "run", **{"elo/a": lambda i, _: i if i > 9 and i % 2 else None})
    assert shown(run, "--keys", "elo/*") == ["elo/a"]
    found = rows(run / "table.csv")
    assert (found[0]["env_steps"], found[-1]["env_steps"]) == ("11000", "39000")


def test_axes_say_what_is_drawn_and_in_which_unit(tmp_path):
    numbers = {"env/max_box_move": lambda i, _: i, "fps": lambda i, _: i}
    run = make_run(tmp_path / "run", **numbers)
    assert plot(run) == 0
    texts = re.sub("<[^>]*>", " ", (run / "plot.svg").read_text())
    words = " ".join(texts.split())
    assert "farthest box from its start (m)" in words
    assert "environment steps per second" in words
    assert "return (sum of rewards), mean of the last 100 episodes" in words


def test_names_with_dollar_signs_are_drawn_as_they_are(tmp_path):
    run = make_run(tmp_path / "run", **{"env/$a_^$": lambda i, seed: i})
    assert plot(run, "--keys", "env/*") == 0
    assert ">env/$a_^$<" in (run / "plot.svg").read_text()


def test_what_ratings_come_from_is_not_called_a_rating(tmp_path):
    numbers = {f"elo/{name}": lambda i, _: i for name in ("hider", "version", "games")}
    run = make_run(tmp_path / "run", **numbers)
    assert plot(run, "--keys", "elo/*") == 0
    words = " ".join(re.sub("<[^>]*>", " ", (run / "plot.svg").read_text()).split())
    assert words.count("Elo rating of") == 1
    assert "games that the ratings come from" in words


def test_a_band_that_is_much_wider_than_the_runs_lie_apart_does_not_press_them_flat(tmp_path):
    for seed in range(2):  # the band is 0.5 ± 6.4
        make_run(tmp_path / str(seed), ["--seed", str(seed)], flat=lambda i, seed: seed + i / 99)
    picture = tmp_path / "plot.svg"
    assert plot(tmp_path / "0", tmp_path / "1", "--keys", "flat", "--out", picture) == 0
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text())
    ticks = [float(text.replace("\N{MINUS SIGN}", "-")) for text in texts if _is_number(text)]
    assert -1 < min(ticks) < 0.1
    assert 1 < max(ticks) < 2


def _is_number(text):
    return re.fullmatch("[\N{MINUS SIGN}]?[0-9]+[.][0-9]+", text)


# ---- what is not as it should be ----


def test_the_line_that_is_being_written_is_left_for_the_next_time(run, tmp_path, caplog):
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"env_steps": 41000, "episode_ret')
    assert plot(run, "--csv", tmp_path / "table.csv") == 0
    assert rows(tmp_path / "table.csv")[-1]["env_steps"] == "40000"
    assert not caplog.text


def test_a_broken_line_is_told_and_the_others_are_drawn(run, tmp_path, caplog):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    lines[10] = lines[10][:20]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert plot(run, "--csv", tmp_path / "table.csv") == 0
    assert len(rows(tmp_path / "table.csv")) == 39
    assert "metrics.jsonl, line 11 is broken and left out" in caplog.text


def test_runs_that_have_not_reported_yet_are_told_and_left_out(run, tmp_path, caplog, capsys):
    young = make_run(tmp_path / "young", reports=0)
    assert plot(run, young, "--csv", tmp_path / "table.csv") == 0
    assert f"there are no metrics yet: {young}" in caplog.text
    assert plot(young) == 2
    assert f"there are no metrics yet in {young}" in capsys.readouterr().err


def test_two_runs_of_one_seed_are_told(tmp_path, caplog):
    for name in ("a", "b"):
        make_run(tmp_path / name)
    assert plot(tmp_path / "a", tmp_path / "b", "--csv", tmp_path / "table.csv") == 0
    assert "have the same settings and seed 0" in caplog.text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere"], "nowhere is not a run folder"),
        (["{run}", "--keys", "rewards"], "--keys rewards fits no metric; there are"),
        (["{run}", "--out", "plot.gif"], "the name must end in .png"),
        (["{run}", "--out", "nowhere/plot.png"], "there is no folder nowhere"),
        (["{run}", "--csv", "nowhere/table.csv"], "there is no folder nowhere"),
        (["{run}", "--csv", "."], "--csv . is a folder; give the name of a file"),
        (["{run}", "--smooth", "2"], "--smooth: '2'; expected a number from 0 to 1"),
        (["{run}", "--rows", "1", "--csv", "t"], "--rows: '1'; expected a whole number from 2 up"),
        (["{run}", "--x", "days"], "invalid choice: 'days'"),
        ([], "RUN_DIR"),
    ],
)
def test_mistakes_are_told_in_a_line(words, told, run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert plot(*(word.format(run=run) for word in words)) == 2
    output = capsys.readouterr()
    assert told in output.err
    assert len(output.err.splitlines()) == 1
    assert output.out == ""


def test_without_matplotlib_the_cure_is_told_and_tables_are_written(run, tmp_path):
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from srl.api.cli import main\n"
        f"assert main(['plot', {str(run)!r}, '--csv', {str(tmp_path / 'table.csv')!r}]) == 0\n"
        f"sys.exit(main(['plot', {str(run)!r}]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 2
    assert re.search(r"-m pip install '?matplotlib.* '?scipy", done.stderr)
    assert (tmp_path / "table.csv").exists()
    assert not (run / "plot.png").exists()


# ---- payoffs of self-play ----


@pytest.fixture
def rated(run):
    """A run whose versions have played each other: newer ones win."""
    payoff = Payoff()
    (run / "opponents").mkdir()
    for version in (0, 20, 40):
        for others in (0, 20, 40):
            if version != others:
                points = 6.0 if version > others else 2.0
                payoff.results[Match("hider", version, others)] = (8, points)
    write_ratings(run, payoff, ["hider", "seeker"], {0: "a", 20: "b", 40: "c"})
    return run


def test_the_payoff_matrix_shows_how_often_versions_beat_each_other(rated, capsys):
    assert plot(rated, "--payoff") == 0
    assert f"48 games: {rated}/payoff.png, {rated}/payoff.svg" in capsys.readouterr().out
    picture = (rated / "payoff.svg").read_text()
    assert "version that plays hider" in picture
    assert (picture.count(">0.75<"), picture.count(">0.25<")) == (3, 3)


def test_payoffs_come_as_a_table_too(rated, tmp_path):
    assert plot(rated, "--payoff", "--csv", tmp_path / "payoff.csv") == 0
    lines = rows(tmp_path / "payoff.csv")
    assert len(lines) == 6
    newest = next(x for x in lines if (x["version"], x["others"]) == ("40", "0"))
    assert (newest["side"], newest["games"], newest["points"]) == ("hider", "8", "6")
    assert not (rated / "payoff.png").exists()


def test_payoffs_of_several_runs_folder_are_those_of_the_newest(rated, capsys):
    assert plot(rated.parent, "--payoff") == 0
    assert f"48 games: {rated}/payoff.png" in capsys.readouterr().out
    assert plot(rated.parent / "none", "--payoff") == 2
    assert "none is not a run folder" in capsys.readouterr().err


def test_a_run_without_matches_has_no_payoffs(run, capsys):
    assert plot(run, "--payoff") == 2
    assert "holds no results of matches between its versions" in capsys.readouterr().err
    assert plot(run, "--payoff", "--keys", "fps") == 2
    assert "--payoff draws no curves" in capsys.readouterr().err


def test_output_goes_to_the_file_that_a_link_names_and_to_no_pipe(tmp_path):
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(tmp_path / "file")
    write_output(link, b"1")
    assert ((tmp_path / "file").read_bytes(), link.is_symlink()) == (b"1", True)
    os.mkfifo(pipe)
    with pytest.raises(UserError, match=r"cannot write .*pipe: it is no regular file"):
        write_output(pipe, b"1")
    with pytest.raises(UserError, match=r"--csv .*pipe is a device or pipe"):
        expect_place("--csv", pipe)
