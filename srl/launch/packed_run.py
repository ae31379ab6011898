"""A run as it travels to hosts that do not see its folder: in an environment variable."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from srl.errors import UserError
from srl.launch.folder import RunFolder

VARIABLE = "SRL_RUN"
"""Environment variable with a packed run. It is no secret; the keys have their own."""
_MOST_BYTES = 100_000  # Linux takes 128 KiB in one variable


@dataclass(frozen=True)
class PackedRun:
    """What a host has to know of a run in order to run workers that keep nothing."""

    folder: str
    """The run's, where it can be seen."""
    config: str
    """Text of its config.json, with the overrides."""
    source: str | None
    """Text of the experiment file; None if there is none."""

    @classmethod
    def of(cls, made: RunFolder, folder: RunFolder) -> PackedRun:
        """Packs a run whose files are in `made`, and whose folder is `folder`."""
        source = made.source.read_text() if made.source.exists() else None
        return cls(str(folder.path), made.config.read_text(), source)

    @classmethod
    def from_environment(cls, variables: Mapping[str, str]) -> PackedRun:
        """The run that `to_text` wrote into the variable."""
        return cls(**json.loads(variables[VARIABLE]))

    def to_text(self) -> str:
        """As the variable holds it.

        Raises:
            UserError: If the experiment file is too long for that.
        """
        text = json.dumps(asdict(self))
        if len(text) > _MOST_BYTES:
            raise UserError(
                f"the experiment file and its configuration take {len(text)} bytes; at most "
                f"{_MOST_BYTES} travel to the hosts: move code into a package that is installed "
                "there"
            )
        return text

    @property
    def home(self) -> RunFolder:
        """The run's own folder."""
        return RunFolder(Path(self.folder))

    @property
    def seen(self) -> bool:
        """Whether this host sees the run's own folder."""
        try:
            return self.home.config.read_text() == self.config
        except OSError:
            return False

    def unpack(self) -> RunFolder:
        """A folder of this host's own that serves workers as the run's would.

        It holds no checkpoints and no metrics. The logs of its workers are in it, so it stays.
        """
        folder = RunFolder(Path(tempfile.mkdtemp(prefix="srl-")))
        folder.log("supervisor").parent.mkdir()
        folder.config.write_text(self.config)
        if self.source is not None:
            folder.source.write_text(self.source)
        return folder
