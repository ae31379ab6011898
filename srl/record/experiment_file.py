"""Runs an experiment file as a module, and names the line at fault where it raises."""

from __future__ import annotations

import hashlib
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType

from srl.core.config_values import FILE_MODULE
from srl.core.errors import UserError
from srl.record.files import short_path
from srl.system.search_path import add_folder, hidden_by


def import_file(path: Path, directory: Path) -> ModuleType:
    """Runs the file as a module of its own; leaves no trace if it raises."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"cannot read the experiment file {short_path(path)}: {error.strerror}"
        ) from error
    # The same name in every process.
    module = ModuleType(FILE_MODULE + hashlib.sha256(source).hexdigest()[:12])
    module.__file__ = str(path)
    before, search_path = sys.modules.get(module.__name__), list(sys.path)
    sys.modules[module.__name__] = module
    add_folder(directory)
    try:
        exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:
        sys.path[:] = search_path
        del sys.modules[module.__name__]
        if before is not None:
            sys.modules[module.__name__] = before
        text = " ".join(str(error).split()) + hidden_by(error, directory)
        where = _location(error, path, directory)
        if isinstance(error, UserError):
            raise UserError(f"{where.rstrip(',')}: {text}") from error
        raise UserError(f"{where} raised {type(error).__name__}: {text}") from error
    return module


def _location(error: BaseException, path: Path, directory: Path) -> str:
    """The innermost line that an error passed of the file, or of those beside it."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        frames.append((error.filename or "", error.lineno))
    installed = tuple(sysconfig.get_paths().values())
    for name, line in reversed(frames):
        own = Path(name).is_relative_to(directory) and not name.startswith(installed)
        if name == str(path) or own:
            other = f", imported by {short_path(path)}," if name != str(path) else ","
            return f"{short_path(Path(name))}, line {line}{other}"
    return short_path(path)
