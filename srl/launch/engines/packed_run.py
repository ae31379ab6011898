"""The files of a run, for hosts that do not see its folder."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from srl.record.run_record import RunFolder
from srl.streams.transport.keys import keys_of


@dataclass(frozen=True)
class PackedRun:
    """Everything that workers need which write no checkpoints."""

    files: Mapping[str, bytes]
    """The contents of the files that a run begins with, by their paths in its folder."""
    keys: str = field(repr=False)
    """The run's keys, as their variable holds them: a secret."""

    @classmethod
    def of(cls, folder: RunFolder) -> PackedRun:
        """Packs a run.

        Raises:
            UserError: If this process may not have its keys.
        """
        begun_with = (folder.source, folder.config, *folder.fixed.rglob("*"))
        files = {
            str(file.relative_to(folder.path)): file.read_bytes()
            for file in begun_with
            if file.is_file()
        }
        return cls(files, keys_of(folder.path).to_text())

    def unpack(self) -> RunFolder:
        """A folder of this host's own that serves workers as the run's would, but for the keys.

        The logs of its workers will be in it, so it stays.
        """
        folder = RunFolder(Path(tempfile.mkdtemp(prefix="srl-")))
        folder.log("supervisor").parent.mkdir()
        for name, content in self.files.items():
            (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
            (folder.path / name).write_bytes(content)
        return folder
