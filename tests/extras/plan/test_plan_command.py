import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from srl.api.cli import main
from srl.config.experiment import load_experiment
from srl.dataflow import plans
from srl.extras.plan.command import scene_of
from srl.extras.plan.svg import picture
from srl.system.shared_memory import available_bytes

ROOT = Path(__file__).parents[3]
ENV = "native:CartPole-v1"
GAME = "native:HideAndSeek-v1"
SVG = "{http://www.w3.org/2000/svg}"


def scene(name, *words):
    return scene_of(load_experiment(ENV, ["--plan", name, *words]).experiment)


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def shown(capsys, *words):
    """What `srl plan` prints, as one line with single spaces."""
    assert main(["plan", *words]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_a_plan_is_told_in_the_terminal(capsys):
    told = shown(capsys, ENV, "--plan", "decoupled", "--plan.actors.replicas", "4")
    for part in (
        "under the plan decoupled, each replica a process",
        "64 environments in 8 groups; 32 steps an update; max_staleness 0; 1 block of",
        "actors x 4",
        "step -> collect: timestep",
        "actors -> policies",
        "26 B",
        "2.6 MB/s",
        "per second at 100,000 env steps/s; --fps N assumes another number",
    ):
        assert part in told


def test_a_teacher_is_drawn_where_it_is_with_the_bytes_of_its_calls(capsys):
    drawn = [f"{ROOT}/tests/loop/drawn.py:taught_by_itself", "--json"]
    told = json.loads(shown(capsys, *drawn))
    assert told["fragments"]["teacher"]["nodes"] == ["teach"]
    (teaching,) = (stream for stream in told["streams"] if stream["target"] == "teacher")
    assert [field["name"] for field in teaching["reply"]] == ["advice/upright"]
    assert teaching["bytes_per_env_step"] == 4 * 4 + 4  # an observation there, a number back
    told = json.loads(shown(capsys, *drawn, "--plan", "decoupled"))
    assert told["fragments"]["policies"]["nodes"] == ["act", "teach"]


@pytest.mark.parametrize("columns", ["60", "80"])
def test_a_narrow_terminal_shows_all_that_streams_carry(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    told = shown(capsys, GAME, "--plan", "decoupled")
    streams = told[told.index("from -> to") :]
    for part in (
        "parameters",
        "inference",
        "observation,",
        "terminated,",
        "truncated",
        "log_prob,",
    ):
        assert part in streams
    assert "…" not in told


@pytest.mark.parametrize("priorities", [0, 0.6])
def test_what_each_fragment_holds_is_told_with_its_size(capsys, priorities):
    words = ["--algorithm", "DQN", "--algorithm.replay", "51200"]
    words += ["--algorithm.priorities", str(priorities), "--plan"]
    drawn = scene("replicated", *words[:-1])
    learners = drawn.plan.fragments["learners"]
    assert set(drawn.held(learners)) == {"state", "replay"}
    # In 100 unrolls of 8 steps and one more row, of 64 slots: the observation, the reward and two
    # flags of a row, the action of a step, which unroll it is and, where they are drawn by
    # priority, that of the transition from each step on.
    whole = 100 * 64 * (9 * (16 + 4 + 2) + 8 * 4 + 4 + bool(priorities) * 8 * 4)
    assert drawn.held(learners)["replay"] == whole // learners.replicas
    assert any("replay of" in text for text in texts(picture(drawn)) if text)
    told = shown(capsys, ENV, *words, "inline")
    assert re.search(rf"holds state of [\d.]+ [kM]B, replay of {whole / 1e6:.3g}0? MB", told), told


def test_a_replay_that_the_machine_could_not_hold_is_told(capsys):
    words = ["plan", "native:CartPole-v1", "--algorithm", "dqn", "--algorithm.replay"]
    assert main([*words, "1000000000"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert ("the replay takes 29.2 GB, and" in shown) == (available_bytes() < 29.2e9)
    assert main([*words, "1000000000000"]) == 2
    assert "rows, and JAX counts to 2,147,483,647" in capsys.readouterr().err


def test_the_processes_beside_a_run_are_fragments_of_their_own(capsys):
    words = ["--plan", "decoupled", "--evaluation.episodes", "7", "--self-play.evaluate", "0.1"]
    told = shown(capsys, GAME, *words)
    for part in (
        "evaluator, in the background",
        "evaluates versions by 7 episodes each",
        "here: a process with 3 % of all cores' time",
        "Slurm: a separate job, with a core",
        "Ray: a separate placement, with a core",
        "rater, in the background",
        "here: a process with 10 % of all cores' time",
        "Slurm, Ray: on the controller's host",
    ):
        assert part in told
    told = json.loads(shown(capsys, GAME, *words, "--json"))["beside"]
    assert set(told) == {"evaluator", "rater"}
    assert told["evaluator"]["own_core"]
    assert not told["rater"]["own_core"]


def test_a_plan_without_evaluation_shows_nothing_beside_the_run(capsys):
    assert "in the background" not in shown(capsys, GAME, "--self-play.evaluate", "0")


def test_a_plan_that_cuts_nothing_says_so(capsys):
    assert main(["plan", ENV]) == 0
    told = capsys.readouterr().out
    assert "under the plan fused, all in one process" in told
    assert "nothing crosses" in told


def test_cores_that_the_machine_does_not_have_are_told(capsys):
    assert main(["plan", ENV, "--plan", "inline", "--plan.actors.cores", "4000"]) == 0
    assert "the plan 'inline' asks for 8000 cores" in capsys.readouterr().out


def test_a_plan_is_told_as_json(capsys):
    words = ["--plan", "inline", "--max-staleness", "3", "--fps", "1000", "--json"]
    assert main(["plan", ENV, *words]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["plan"], told["groups"], told["blocks"]) == ("inline", 2, 4)
    assert told["fragments"]["learner"]["nodes"] == ["learn"]
    sample = next(stream for stream in told["streams"] if stream["kind"] == "sample")
    assert (sample["source"], sample["target"]) == ("actors", "learner")
    assert sample["bytes_per_second"] == 1000 * sample["bytes_per_env_step"]
    observation = next(field for field in sample["request"] if field["name"] == "observation")
    assert observation == {"name": "observation", "dtype": "float32", "shape": [33, 64, 4]}


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--plan", "decopled"], 2, "did you mean decoupled?"),
        (["--plan", "inline", "--plan.actor.replicas", "2"], 2, "did you mean --plan.actors.repl"),
        (["--plan", "auto"], 2, "give --plan NAME to see one"),
        (["--fps", "0"], 2, "--fps: '0'; expected a number"),
        (["--svg", "/no/such/folder/x.svg"], 2, "there is no folder /no/such/folder"),
    ],
)
def test_what_cannot_be_drawn_is_told_in_a_line(words, code, told, capsys):
    assert main(["plan", ENV, *words]) == code
    assert told in capsys.readouterr().err


def test_the_picture_shows_every_fragment_node_and_stream(tmp_path):
    path = tmp_path / "plan.svg"
    words = ["--plan", "env_servers", "--plan.actors.gpus", "0.5", "--svg", str(path)]
    assert main(["plan", ENV, *words]) == 0
    told = texts(path.read_text())
    for part in ("actors × 2", "learners × 2", "step", "act", "collect", "learn"):  # noqa: RUF001
        assert part in told
    assert "an even share of the cores, 0.5 GPU" in told
    assert "gradients: sums" in told


def test_the_picture_of_a_users_own_plan_is_sound(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(
        "from srl import Experiment, Fragment, Plan\n"
        "experiment = Experiment(\n"
        f"    name='own', env={ENV!r},\n"
        "    plan=Plan('a < b & c', {\n"
        "        'a': Fragment(('step', 'collect'), replicas=4),\n"
        "        'b': Fragment(('act', 'learn')),\n"
        "    }),\n"
        ")\n"
    )
    told = texts(picture(scene_of(load_experiment(str(path)).experiment)))
    assert "own: a < b & c" in told
    kinds = {text.split(":")[0] for text in told if ": " in text}
    assert kinds >= {"inference", "sample"}


def test_the_target_comes_first(capsys):
    assert main(["plan", "--plan", "inline", ENV]) == 2
    assert "needs an experiment file or an environment id first" in capsys.readouterr().err


@pytest.mark.parametrize("name", plans.PLANS)
def test_the_documents_pictures_are_up_to_date_but_for_numbers(name):
    def still(svg):
        return [re.sub(r"[\d.,]+ ?[kMGT]?B?\b", "#", text) for text in texts(svg)]

    drawn = (ROOT / "docs" / "plans" / f"{name}.svg").read_text()
    two = ("--plan.actors.replicas", "2") if "actors" in plans.named(name).fragments else ()
    current = still(picture(scene(name, *two)))
    assert still(drawn) == current, f"make pictures draws docs/plans/{name}.svg"


def test_the_documents_name_every_plan():
    page = (ROOT / "docs" / "plans.md").read_text()
    for name in plans.PLANS:
        assert f"plans/{name}.svg" in page


def test_the_documents_own_plan_can_be_drawn(tmp_path):
    page = (ROOT / "docs" / "plans.md").read_text()
    code = page.split("## A plan of your own")[1].split("```python")[1].split("```")[0]
    (tmp_path / "own.py").write_text(code)
    own = scene_of(load_experiment(str(tmp_path / "own.py")).experiment)
    assert "parameters: policy" in texts(picture(own))
    assert len(code[code.index("plan=") :].splitlines()) <= 15
