"""The command `srl share`: the policies of a run in a folder that can be published.

The folder is a run's folder with only the files that acting needs, so `srl.load`, `srl eval` and
`srl watch` take it as it is. For the Hugging Face hub it adds a card with the results of an
evaluation, and a film.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from srl.config.experiment import Experiment
from srl.core.errors import RunError, UserError, expect_number
from srl.core.settings import MOST_SEED
from srl.evaluation.evaluate import evaluate
from srl.evaluation.players import trained
from srl.evaluation.video import Film
from srl.loop.acting.fixed_acting import ACTING_PARTS
from srl.policies.agent import load
from srl.policies.card import card
from srl.policies.onnx_graph import write_policy
from srl.record.checkpoint import Checkpoints
from srl.record.files import UNFINISHED, writing
from srl.record.ratings import newest_ratings
from srl.record.run_record import RunFolder, read_config, read_specs
from srl.record.trust import unsigned
from srl.run.folder import open_run

FILM = "replay.mp4"
"""The film that the hub plays on the page of a policy."""


def share(
    run_dir: Path,
    output: Path,
    version: int | Literal["best"] | None = None,
    episodes: int = 100,
    sampled: bool = False,
    seed: int = 0,
    trust: bool = False,
) -> list[str]:
    """Makes a folder of a run's policies to publish.

    Args:
        run_dir: The run's folder.
        output: The new folder, or an empty one; complete or absent.
        version: Of the checkpoint, or "best"; the newest by default.
        episodes: Of the evaluation.
        sampled: Evaluate and film drawn actions in place of the most probable ones.
        seed: Of the evaluation and the film.
        trust: As for `srl.load`.

    Returns:
        Why what could not be made is not there: the film, or ONNX graphs.

    Raises:
        UserError: For a run without such a checkpoint, or a folder that cannot be written.
    """
    expect_number("--episodes", episodes, 2)
    expect_number("--seed", seed, 0, MOST_SEED)
    output = output.resolve()
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise UserError(f"{output} exists already; give a new or an empty folder")
    if not output.parent.is_dir():
        raise UserError(f"there is no folder {output.parent}; make it, or choose another")
    folder, resolved = open_run(run_dir, trained=True, trust=trust)
    experiment = resolved.experiment
    with writing(output):
        unfinished = tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=output.parent)
    with unfinished as name:
        made = RunFolder(Path(name, "shared"))
        with writing(output):
            made.path.mkdir()
            # Before it is evaluated: a run that goes on removes versions and replaces its best.
            copy_what_acts(folder, made, version)
        settings: Any = {"sampled": sampled, "seed": seed, "experiment": experiment}
        found = evaluate(made.path, episodes=episodes, **settings)
        found["run"] = folder.path.name
        if rated := newest_ratings(folder.path):
            found["ratings"] = rated
        for fixed in found.get("fixed", {}).values():
            fixed["run"] = Path(fixed["run"]).name
        with writing(output):
            missing = _film(experiment, made, seed, not sampled) + _write_graphs(made)
            (made.path / "results.json").write_text(json.dumps(found))
            text = card(output.name, experiment, found, read_specs(made), made.path)
            (made.path / "README.md").write_text(text)
            made.path.replace(output)
    return missing


def copy_what_acts(folder: RunFolder, made: RunFolder, version: int | str | None) -> None:
    """Copies the parts of a run that its policies need, without paths of this machine."""
    values = _copy_config(folder, made)["experiment"]
    if folder.source.exists():
        shutil.copyfile(folder.source, made.source)
    for pattern, policy in values["policies"].items():
        if isinstance(policy, dict):  # of another run, which plays
            copy, shared = folder.fixed_copy(pattern), made.fixed_copy(pattern)
            shutil.copytree(copy, shared)
            _copy_config(RunFolder(copy), RunFolder(shared))
    shutil.copyfile(folder.specs, made.specs)
    learners, counts = Checkpoints(folder.checkpoints).learners(version)
    acting = {
        name: {part: tree for part, tree in state.items() if part in ACTING_PARTS}
        for name, state in learners.items()
    }
    with closing(Checkpoints(made.checkpoints)) as checkpoints:
        checkpoints.save(counts["updates"], {"learners": acting}, counts, wait=True)


def _copy_config(folder: RunFolder, made: RunFolder) -> dict[str, Any]:
    """Writes a run's configuration without paths of this machine, and gives it."""
    config = read_config(folder)
    if config["source"]:
        target, source = config["target"], made.source.name
        name = target.rpartition(".py:")[2] if ".py:" in target else "experiment"
        config |= {"source": source, "target": f"{source}:{name}"}
    config["directory"] = "."
    values = config["experiment"]
    others = *values["policies"].values(), *(values.get("teacher") or ()), values.get("init_from")
    for policy in others:
        if isinstance(policy, dict):  # of another run
            path = policy["run"]
            policy["run"] = name = Path(path).name
            config["overrides"] = [_shortened(word, path, name) for word in config["overrides"]]
    made.config.write_text(json.dumps(unsigned(config), indent=2) + "\n")
    return config


def _shortened(word: str, path: str, name: str) -> str:
    """An argument with the name of a run in place of its path: RUN_DIR, RUN_DIR:V, --flag=..."""
    flag, equals, given = word.rpartition("=")
    if given == path or given.startswith(f"{path}:"):
        return f"{flag}{equals}{name}{given.removeprefix(path)}"
    return word


def _film(experiment: Experiment, made: RunFolder, seed: int, greedy: bool) -> list[str]:
    """Films an episode; gives the reason where the environment cannot be filmed."""
    try:
        film = Film(experiment)
        player = trained(experiment, made, read_specs(made)).player
        film.record(made.path / FILM, player, 1, seed, greedy)
    except (UserError, RunError) as error:
        return [f"no film: {error}"]
    return []


def _write_graphs(made: RunFolder) -> list[str]:
    """Writes each policy as ONNX; gives the reason where that cannot be."""
    agent = load(made.path, trust=True)  # as the run has been opened
    try:
        for name in agent.policies:
            write_policy(agent, name, made.path / f"{name}.onnx")
    except UserError as error:
        return [f"no ONNX: {error}"]
    return []
