"""Names that other libraries give to settings, and srl's: one table for options and for files.

They are those of Stable-Baselines3, CleanRL, RLlib, Sample Factory and Tianshou.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection

from srl.core.errors import nearest

_ALGORITHM, _NETWORK = "algorithm.", "algorithm.network."
_RATE, _WIDTHS = f"{_ALGORITHM}learning_rate", f"{_NETWORK}widths"
_DEVICE = (
    "JAX takes a GPU where there is one: JAX_PLATFORMS=cpu leaves it out, and a plan gives GPUs to "
    "fragments, as --plan.learner.gpus 1"
)
_BATCH = f"{_ALGORITHM}batch_size", f"{_ALGORITHM}minibatches"
_MINIBATCHES = f"{_ALGORITHM}minibatches", f"{_ALGORITHM}batch_size"
_EXPLORATION_END = f"{_ALGORITHM}epsilon_end"
_TARGET = f"{_ALGORITHM}target_rate"

OTHER_NAMES: dict[str, str | tuple[str, ...]] = {
    "lr": _RATE,
    "step_size": _RATE,
    "alpha": (f"{_ALGORITHM}temperature", _RATE),
    "ent_alpha": f"{_ALGORITHM}temperature",
    "actor_lr": _RATE,
    "policy_lr": _RATE,
    "q_lr": f"{_ALGORITHM}critic_learning_rate",
    "critic_lr": f"{_ALGORITHM}critic_learning_rate",
    "lr_schedule": _RATE,
    "anneal_lr": f"{_ALGORITHM}anneal",
    "total_timesteps": "env_steps",
    "timesteps": "env_steps",
    "timesteps_total": "env_steps",
    "train_for_env_steps": "env_steps",
    "max_steps": "env_steps",
    "num_steps": f"{_ALGORITHM}unroll_length",
    "n_steps": f"{_ALGORITHM}unroll_length",
    "rollout": f"{_ALGORITHM}unroll_length",
    "rollout_length": f"{_ALGORITHM}unroll_length",
    "rollout_fragment_length": f"{_ALGORITHM}unroll_length",
    "train_freq": f"{_ALGORITHM}unroll_length",
    "n_envs": "num_envs",
    "num_env": "num_envs",
    "num_envs_per_worker": "num_envs",
    "num_envs_per_env_runner": "num_envs",
    "env_id": "env",
    "env_name": "env",
    "env_kwargs": "env",
    "gamma": f"{_ALGORITHM}discount",
    "batch_size": _BATCH,
    "minibatch_size": _MINIBATCHES,
    "sgd_minibatch_size": _MINIBATCHES,
    "num_minibatches": _MINIBATCHES,
    "nminibatches": _MINIBATCHES,
    "num_batches_per_epoch": _MINIBATCHES,
    "train_batch_size": ("num_envs", f"{_ALGORITHM}unroll_length"),
    "n_epochs": f"{_ALGORITHM}epochs",
    "num_epochs": f"{_ALGORITHM}epochs",
    "noptepochs": f"{_ALGORITHM}epochs",
    "num_sgd_iter": f"{_ALGORITHM}epochs",
    "update_epochs": f"{_ALGORITHM}epochs",
    "ent_coef": (f"{_ALGORITHM}entropy_cost", f"{_ALGORITHM}temperature"),
    "entropy_coeff": f"{_ALGORITHM}entropy_cost",
    "entropy_coef": f"{_ALGORITHM}entropy_cost",
    "exploration_loss_coeff": f"{_ALGORITHM}entropy_cost",
    "vf_coef": f"{_ALGORITHM}value_cost",
    "vf_loss_coeff": f"{_ALGORITHM}value_cost",
    "value_loss_coeff": f"{_ALGORITHM}value_cost",
    "lam": f"{_ALGORITHM}gae_lambda",
    "lambda_": f"{_ALGORITHM}gae_lambda",
    "lambda": f"{_ALGORITHM}gae_lambda",
    "clip_range": f"{_ALGORITHM}clip",
    "clip_coef": f"{_ALGORITHM}clip",
    "clip_param": f"{_ALGORITHM}clip",
    "ppo_clip_ratio": f"{_ALGORITHM}clip",
    "grad_clip": f"{_ALGORITHM}max_grad_norm",
    "gradient_clip": f"{_ALGORITHM}max_grad_norm",
    "normalize_advantage": f"{_ALGORITHM}normalize_advantages",
    "norm_adv": f"{_ALGORITHM}normalize_advantages",
    "normalize_input": f"{_ALGORITHM}normalize_observations",
    "norm_obs": f"{_ALGORITHM}normalize_observations",
    "normalize_returns": f"{_ALGORITHM}normalize_values",
    "log_std_init": f"{_ALGORITHM}initial_log_std",
    "adam_eps": f"{_ALGORITHM}adam_epsilon",
    "buffer_size": f"{_ALGORITHM}replay",
    "replay_size": f"{_ALGORITHM}replay",
    "memory_size": f"{_ALGORITHM}replay",
    "replay_buffer_capacity": f"{_ALGORITHM}replay",
    "learning_starts": f"{_ALGORITHM}warm_up",
    "start_timesteps": f"{_ALGORITHM}warm_up",
    "gradient_steps": f"{_ALGORITHM}samples_per_insert",
    "utd_ratio": f"{_ALGORITHM}samples_per_insert",
    "tau": _TARGET,
    "polyak": _TARGET,
    "target_update_interval": f"{_ALGORITHM}target_period",
    "target_network_update_freq": f"{_ALGORITHM}target_period",
    "target_network_frequency": f"{_ALGORITHM}target_period",
    "policy_delay": f"{_ALGORITHM}delay",
    "policy_frequency": f"{_ALGORITHM}delay",
    "n_critics": f"{_ALGORITHM}critics",
    "exploration_fraction": f"{_ALGORITHM}exploration",
    "exploration_initial_eps": f"{_ALGORITHM}epsilon_start",
    "start_e": f"{_ALGORITHM}epsilon_start",
    "exploration_final_eps": _EXPLORATION_END,
    "end_e": _EXPLORATION_END,
    "epsilon": _EXPLORATION_END,
    "exploration_noise": f"{_ALGORITHM}noise",
    "action_noise": f"{_ALGORITHM}noise",
    "policy_noise": f"{_ALGORITHM}target_noise",
    "target_policy_noise": f"{_ALGORITHM}target_noise",
    "target_noise_clip": f"{_ALGORITHM}noise_clip",
    "v_min": f"{_ALGORITHM}value_range",
    "v_max": f"{_ALGORITHM}value_range",
    "n_atoms": f"{_ALGORITHM}atoms",
    "num_atoms": f"{_ALGORITHM}atoms",
    "prioritized_replay_alpha": f"{_ALGORITHM}priorities",
    "policy_kwargs": _WIDTHS,
    "net_arch": _WIDTHS,
    "hidden_sizes": _WIDTHS,
    "hidden_dims": _WIDTHS,
    "fcnet_hiddens": _WIDTHS,
    "encoder_mlp_layers": _WIDTHS,
    "hidden_size": f"{_NETWORK}mlp.width",
    "activation_fn": f"{_NETWORK}mlp.activation",
    "fcnet_activation": f"{_NETWORK}mlp.activation",
    "nonlinearity": f"{_NETWORK}mlp.activation",
    "use_lstm": f"{_NETWORK}memory",
    "use_rnn": f"{_NETWORK}memory",
    "lstm_hidden_size": f"{_NETWORK}memory",
    "rnn_size": f"{_NETWORK}memory",
    "lstm_cell_size": f"{_NETWORK}memory",
    "n_lstm_layers": f"{_NETWORK}memory",
    "num_workers": "workers",
    "n_workers": "workers",
    "num_env_runners": "workers",
    "algo": "algorithm",
    "model": "algorithm",
    "exp_name": "name",
    "experiment": "name",
    "max_time": "minutes",
    "train_for_seconds": "minutes",
    "time_limit": "minutes",
    "eval_freq": "evaluation.every",
    "n_eval_episodes": "evaluation.episodes",
    "eval_episodes": "evaluation.episodes",
    "evaluation_interval": "evaluation.every",
    "save_freq": "checkpoint_minutes",
    "checkpoint_freq": "checkpoint_minutes",
    "log_interval": "report_every",
    "callback": "on_report",
    "wandb": "trackers",
    "track": "trackers",
    "with_wandb": "trackers",
}
"""Another library's name -> the settings that it may mean, by their paths, the likeliest first."""

WITHOUT: dict[str, str] = {
    "device": _DEVICE,
    "cuda": _DEVICE,
    "num_gpus": _DEVICE,
    "gpu": _DEVICE,
    "framework": "all is computed by JAX: leave it out",
    "batch_mode": "unrolls have unroll_length steps, and episodes may end within: leave it out",
    "policy": "the network follows from what is observed, or is --algorithm.network...",
    "tensorboard_log": "TensorBoard events are always written, into the run's folder: leave it out",
    "verbose": "a run shows one line for each report, and srl.train(..., quiet=True) none",
    "render_mode": "a trained policy is shown by srl eval RUN_DIR --live, or --video",
    "vec_env_cls": "--workers N steps environments in separate processes",
}
"""Another library's name without a counterpart -> advice."""

_CALLED = "srl calls it "
_SHOWN = 3
"""Classes that a hint names."""


def option_hint(flag: str, known: Callable[[str], bool]) -> str | None:
    """Advice for an unknown option of another library; None for other options.

    Args:
        flag: Such as --lr or --algorithm.lr.
        known: Whether a flag is one of the experiment's options.
    """
    name = flag.removeprefix("--").removeprefix("no-").rpartition(".")[2].replace("-", "_")
    flags = [f"--{path.replace('_', '-')}" for path in _paths(name)]
    plain = [f"--{flag.rpartition('.')[2]}" for flag in flags]  # of commands without settings
    if there := [flag for flag in flags if known(flag)] or [flag for flag in plain if known(flag)]:
        return f"{_CALLED}{' or '.join(there)}"
    if flags:  # a setting of another algorithm, or one that an experiment's file alone may have
        return f"{_CALLED}{flags[0]}, which is no option here"
    return WITHOUT.get(name)


def unknown_option(flag: str, known: Collection[str], otherwise: str) -> str:
    """The error text for an unknown option of any command."""
    hint, name = option_hint(flag, known.__contains__), flag.removeprefix("--")
    same = [option for option in known if option.endswith(f".{name}")]
    names = {option.removeprefix("--"): option for option in known}
    near = same or [names[x] for x in difflib.get_close_matches(name, names, n=1, cutoff=0.6)]
    if hint is None and near:
        hint = f"did you mean {near[0]}?"
    return f"unknown option {flag}; {hint or otherwise}"


def setting_hint(name: str, known: Collection[str], owners: Callable[[str], list[str]]) -> str:
    """Advice for a setting that a class of settings does not have.

    Args:
        name: As it was given.
        known: The names of the settings that the class has.
        owners: Gives the names of the classes that have a setting of this name.
    """
    own = [path.rpartition(".")[2] for path in _paths(name)]
    if there := [each for each in own if each in known]:
        return f"{_CALLED}{' or '.join(there)}"
    if name in WITHOUT:
        return WITHOUT[name]
    for wanted in (*own, name):
        if kinds := owners(wanted):
            called = "it is" if wanted == name else f"{_CALLED}{wanted}, which is"
            others = " and others" if len(kinds) > _SHOWN else ""
            return f"{called} a setting of {', '.join(kinds[:_SHOWN])}{others}"
    return nearest(name, known)


def _paths(name: str) -> tuple[str, ...]:
    """The paths of the settings that another library's name may mean."""
    found = OTHER_NAMES.get(name, ())
    return (found,) if isinstance(found, str) else found
