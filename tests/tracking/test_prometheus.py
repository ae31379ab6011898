import socket
import urllib.error

import pytest
from tiny_trainer import STEPS
from tracked_runs import UPDATES, free_port, new_run, resumed_run, scraped
from waiting import wait_until

from srl.core.errors import RunError, UserError
from srl.run.metrics import read_metrics


def test_the_newest_report_can_be_read_while_a_run_goes_on(tmp_path, capsys):
    port, seen = free_port(), {}

    def answers():
        try:
            seen.update(scraped(port))
        except urllib.error.URLError:  # it is about to listen
            return False
        return seen.get("srl_updates_total", (0, {}))[0] >= 3

    def look(trainer):
        if trainer.updates == 4:
            wait_until(answers)

    options = ("--trackers", "prometheus", "--tracking.prometheus-port", str(port), "--seed", "7")
    assert new_run(tmp_path / "run", *options, on_update=look) == 0
    report = read_metrics(tmp_path / "run")[2]
    assert seen["srl_env_steps_total"] == (3 * STEPS, {})
    assert seen["srl_episode_return"] == (report["episode_return"], {})
    assert seen["srl_loss_policy_loss"] == (pytest.approx(report["loss/policy_loss"]), {})
    assert seen["srl_report_timestamp_seconds"][0] == pytest.approx(report["time"], abs=60)
    assert "srl_episode_length" not in seen  # it is NaN
    labels = {"env_id": "Tiny-v0", "exp_name": "ppo", "seed": "7", "run": str(tmp_path / "run")}
    assert seen["srl_run_info"] == (1, labels)
    with pytest.raises(urllib.error.URLError):  # it ends with the run
        scraped(port)
    assert f"prometheus   http://127.0.0.1:{port}/metrics\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "reached"), [((), False), (("--tracking.prometheus-address", "0.0.0.0"), True)]
)
def test_other_hosts_can_read_only_if_that_is_asked_for(tmp_path, options, reached):
    port, found = free_port(), []
    other = "127.0.0.2"  # an address that is not the one by default

    def listens(host):
        with socket.socket() as it:
            return it.connect_ex((host, port)) == 0

    def look(trainer):
        if trainer.updates == 1:
            wait_until(lambda: listens("127.0.0.1"))
            found.append(listens(other))

    given = ("--trackers", "prometheus", "--tracking.prometheus-port", str(port))
    assert new_run(tmp_path / "run", *given, *options, on_update=look) == 0
    assert found == [reached]


def test_a_port_that_is_taken_costs_a_line_and_not_the_run(tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        given = ("--trackers", "prometheus", "--tracking.prometheus-port", port)
        assert new_run(tmp_path / "run", *given) == 0
    shown = capsys.readouterr().out
    assert shown.count("prometheus") == 1
    assert "the tracker prometheus cannot begin, and the run goes on without" in shown
    assert "Address already in use" in shown
    assert len(read_metrics(tmp_path / "run")) == UPDATES


def test_a_resumed_run_listens_again(tmp_path):
    port, seen = free_port(), {}

    def fail(trainer):
        if trainer.updates == 4:
            wait_until(lambda: scraped_or_nothing(port, seen))
            raise RunError("the simulator raised")

    given = ("--trackers", "prometheus", "--tracking.prometheus-port", str(port))
    assert new_run(tmp_path / "run", *given, on_update=fail) == 1
    assert seen
    assert resumed_run(tmp_path / "run") == 0


def scraped_or_nothing(port, seen):
    try:
        seen.update(scraped(port))
    except urllib.error.URLError:
        return False
    return True


def test_a_library_that_is_missing_is_told_before_the_run(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    with pytest.raises(
        UserError,
        match=r"needs the Python module prometheus_client, .*pip install .*prometheus-client",
    ):
        new_run(tmp_path / "run", "--trackers", "prometheus")
    assert not (tmp_path / "run").exists()
