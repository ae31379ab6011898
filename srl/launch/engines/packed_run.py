"""What travels of a run to hosts that do not see its folder."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from srl.run.folder import RunFolder
from srl.streams.transport.keys import keys_of


def first_files(folder: RunFolder) -> dict[str, str]:
    """Texts of the files with which a run begins, by name; its workers need no others."""
    files = (folder.source, folder.config)
    return {file.name: file.read_text() for file in files if file.exists()}


@dataclass(frozen=True)
class PackedRun:
    """All that workers need which keep nothing."""

    files: Mapping[str, str]
    """As `first_files`."""
    keys: str = field(repr=False)
    """As their variable holds them: a secret."""

    @classmethod
    def of(cls, folder: RunFolder) -> PackedRun:
        """Packs a run.

        Raises:
            UserError: If this process may not have its keys.
        """
        return cls(first_files(folder), keys_of(folder.path).to_text())

    def unpack(self) -> RunFolder:
        """A folder of this host's own that serves workers as the run's would, but for the keys.

        The logs of its workers will be in it, so it stays.
        """
        folder = RunFolder(Path(tempfile.mkdtemp(prefix="srl-")))
        folder.log("supervisor").parent.mkdir()
        for name, text in self.files.items():
            (folder.path / name).write_text(text)
        return folder
