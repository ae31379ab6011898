"""Weights & Biases, online or offline."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from srl.record.files import short_path
from srl.tracking.tracker import Histogram, Started, TrackedRun, expect_library, tag

_KEYS = ("env_id", "exp_name", "seed", "srl")


class WandB:
    """A run of Weights & Biases, which the library's own variables say more of (WANDB_MODE, ...).

    Where there is no key, or the server does not answer, the run is kept offline. Its files are in
    the run's folder. Keys come from the library's own login, and srl never sees them.
    """

    def __init__(self) -> None:
        expect_library("wandb", "wandb")
        self._step = self._env_steps = -1

    def start(self, run: TrackedRun) -> Started:
        """Begins a run in the project, or goes on with the one of this id."""
        self._wandb = wandb = import_module("wandb")
        self._id = run.id or secrets.token_hex(4)
        mode, reason = wandb.setup().settings.mode, ""
        try:
            # The library would ask for a key at the terminal, which is the run's.
            if mode == "online" and not wandb.login(prompt=False):
                mode, reason = "offline", "there is no key (`wandb login`)"
            self._run = self._init(run, mode)
        except wandb.errors.CommError as error:
            mode, reason = "offline", str(error).partition("\n")[0]
            self._run = self._init(run, mode)
        self._run.define_metric("*", step_metric="global_step")  # as CleanRL's runs have it
        if mode != "offline":
            return Started(self._id, self._run.url or "")
        sync = f"`wandb sync {short_path(Path(self._run.dir).parent)}` sends it"
        return Started(self._id, f"offline{reason and f' as {reason}'}; {sync}")

    def _init(self, run: TrackedRun, mode: str) -> Any:
        config = run.config
        return self._wandb.init(
            mode=mode,
            id=self._id,
            resume="allow",
            project=run.settings.project or os.environ.get("WANDB_PROJECT") or "srl",
            name=f"{config['env_id']}__{config['exp_name']}__{config['seed']}__{self._id}",
            tags=config["tags"],
            config={**config["experiment"], **{key: config[key] for key in _KEYS}},
            dir=run.folder,
            # Nothing is printed, no stream of the run's is taken, and no source code is sent.
            settings=self._wandb.Settings(console="off", silent=True, save_code=False),
        )

    def metrics(self, values: Mapping[str, float], env_steps: int) -> None:
        """Logs scalars, with CleanRL's tags."""
        named = {tag(name): value for name, value in values.items()}
        self._log(named, env_steps)

    def histogram(self, name: str, histogram: Histogram, env_steps: int) -> None:
        """Logs a histogram."""
        shown = self._wandb.Histogram(np_histogram=histogram)
        self._log({name: shown}, env_steps)

    def video(self, file: Path, env_steps: int) -> None:
        """Logs a film."""
        film = self._wandb.Video(str(file), caption=file.stem, format="mp4")
        self._log({"videos": film}, env_steps)

    def _log(self, values: Mapping[str, Any], env_steps: int) -> None:
        """Logs values with others of these env steps, or in a row of their own.

        No row may have a lower step than the last, as an older version's evaluation would.
        """
        if env_steps != self._env_steps:
            self._step, self._env_steps = max(self._step + 1, env_steps), env_steps
        self._run.log({**values, "global_step": env_steps}, step=self._step)

    def end(self, code: int) -> None:
        """Sends what is left."""
        self._run.finish(exit_code=code)
