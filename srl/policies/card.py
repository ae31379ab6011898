"""The card of shared policies: a README.md with the metadata that the Hugging Face hub reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from srl.config.experiment import Experiment
from srl.core.episodes import kinds_of
from srl.core.types import Specs
from srl.pools.python.sources import source_name


def card(
    name: str, experiment: Experiment, found: Mapping[str, Any], specs: Specs, folder: Path
) -> str:
    """Gives the text of a card.

    Args:
        name: Of the folder.
        experiment: What was trained.
        found: By `evaluate`.
        specs: Of the environment.
        folder: What is shared, for the names of its files.
    """
    algorithm = type(experiment.algorithm).__name__
    source: Any = experiment.env
    env = source_name(getattr(source, "pool_id", source))
    files = sorted(file.name for file in folder.iterdir())
    actions = "the most probable actions" if found["greedy"] else "actions drawn as in training"
    again = f"--episodes {found['episodes']} --seed {found['seed']}"
    again += "" if found["greedy"] else " --sampled"
    rows = "\n".join(f"| {key} | {_spread(one)} |" for key, one in found["results"].items())
    policies = ", ".join(
        sorted({name for name in experiment.policies.values() if isinstance(name, str)})
    )
    agents = ", ".join(f"{len(own)} {kind}" for kind, own in kinds_of(specs.agents).items())
    film = '\n\n<video src="replay.mp4" controls></video>' if "replay.mp4" in files else ""
    graphs = [file for file in files if file.endswith(".onnx")]
    return f"""---
{_metadata(algorithm, env, found)}
---

# {algorithm} on {env}

Trained with srl for {found["env_steps"]:,} environment steps, version
{found["version"]}. Policies: {policies}; agents: {agents}.{film}

## Results

{found["episodes"]} episodes, seed {found["seed"]}, {actions}; mean +/- standard deviation over
episodes.

| | |
|---|---|
{rows}

## Use

```python
import srl
from huggingface_hub import snapshot_download

agent = srl.load(snapshot_download("USER/{name}"))
action, memory = agent.act(observation)
```

`srl eval FOLDER {again}` repeats the evaluation, and
`srl eval FOLDER --video film.mp4` films an episode.
{_onnx_text(graphs)}All settings are in `config.json`.
"""


def _metadata(algorithm: str, env: str, found: Mapping[str, Any]) -> str:
    """The card's metadata as YAML, whose texts JSON can write."""
    reward = _spread(found["results"]["episode_return"])
    kind, text = "reinforcement-learning", json.dumps
    tags = [env, algorithm, "deep-reinforcement-learning", kind, "srl"]
    listed = "\n".join(f"- {text(tag)}" for tag in tags)
    return f"""library_name: srl
pipeline_tag: {kind}
tags:
{listed}
model-index:
- name: {text(algorithm)}
  results:
  - task:
      type: {kind}
      name: {kind}
    dataset:
      name: {text(env)}
      type: {text(env)}
    metrics:
    - type: mean_reward
      value: {text(reward)}
      name: mean_reward
      verified: false"""


def _spread(estimate: Mapping[str, Any]) -> str:
    """A mean and the standard deviation over episodes, as the hub's leaderboards have it."""
    deviation = estimate["standard_deviation"]  # of one episode there is none
    return f"{estimate['mean']:.2f}" + (f" +/- {deviation:.2f}" if deviation is not None else "")


def _onnx_text(graphs: list[str]) -> str:
    """Describes acting without srl, where there are graphs."""
    if not graphs:
        return ""
    return f"Without srl: {', '.join(f'`{name}`' for name in graphs)} (ONNX).\n"
