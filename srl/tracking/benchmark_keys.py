"""The keys by which Open RL Benchmark finds runs: env_id, exp_name, seed and tags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from srl.config.built_in_envs import config_class
from srl.config.experiment import default_name
from srl.core.backends import MIXTURE


def benchmark_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of an experiment (Huang et al., 2024, and CleanRL's names of them).

    Args:
        values: All its values, as `config.json` has them.

    Returns:
        `env_id`: the environment's id without what it comes from: CartPole-v1 for
        native:CartPole-v1; `exp_name`: the experiment's name, or the algorithm's, such as ppo,
        where the name is only that of the environment; `seed`; `tags`.
    """
    whole_id, name = _id(values["env"]), values["name"]
    if name == default_name(whole_id):
        name = values["algorithm"]["type"].rpartition(":")[2].lower()
    seed, tags = values["seed"], values.get("tags", [])  # an older run has no tags
    mixed = whole_id.startswith(MIXTURE)
    env_id = whole_id if mixed else whole_id.rpartition(":")[2]
    return {"env_id": env_id, "exp_name": name, "seed": seed, "tags": tags}


def _id(env: Any) -> str:
    """The id of an environment; of a configuration, that of its pool, or else its class."""
    if not isinstance(env, Mapping):
        return str(env)
    pool_id = getattr(config_class(env), "pool_id", None)
    return env.get("id") or pool_id or env["type"]
