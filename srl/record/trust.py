"""The runs of which everything may be imported: this user's own, and those that the user trusts.

A run's config.json names modules, and its experiment.py is executed. The folder of a stranger is
read all the same, as long as it names nothing but settings that srl ships. srl signs each
config.json that it writes with a key that only its user can read, and knows its own runs by that,
wherever they are moved to.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib
import json
import logging
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from srl.core.errors import UserError
from srl.record.files import read_object

logger = logging.getLogger(__name__)

OPTION = "--trust (in Python trust=True)"
_SIGNATURE, _DIGEST = "signature", "digest"
CHANGED = (
    "was changed by hand: undo the change, or start a new run with other settings (`srl resume` "
    "takes a larger budget)"
)
"""Reports such a config.json, and the cure."""
_SETTINGS = (
    "srl.algorithms",
    "srl.config.curriculum",
    "srl.config.evaluation",
    "srl.config.experiment",
    "srl.config.fixed",
    "srl.config.self_play",
    "srl.config.tracking",
    "srl.core.schedule",
    "srl.dataflow",
    "srl.envs",
    "srl.networks",
    "srl.pools.config",
    "srl.pools.mixture",
)
"""Modules, and packages of modules, that have classes of settings, and do nothing when imported."""


def signed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Gives a run's configuration with its digest and this user's signature.

    It has no signature where there is no key.
    """
    plain = unsigned(config)
    digested = {**plain, _DIGEST: _digest(plain)}
    try:
        return {**digested, _SIGNATURE: _signature(plain, _key(make=True))}
    except OSError as error:
        logger.warning(
            "%s cannot be written (%s): later commands on this run need --trust; XDG_STATE_HOME "
            "names another place for it",
            *(_key_file(), error.strerror),
        )
        return digested


def unsigned(config: Mapping[str, Any]) -> dict[str, Any]:
    """Gives a configuration without its signature and its digest."""
    return {name: x for name, x in config.items() if name not in (_SIGNATURE, _DIGEST)}


def is_changed(config: Mapping[str, Any]) -> bool:
    """Tells if a configuration was changed by hand after srl wrote it.

    The digest protects nobody: it tells mistakes from the folders of strangers.
    """
    return _DIGEST in config and config[_DIGEST] != _digest(unsigned(config))


def cure(file: Path) -> str:
    """Advice where a checkpoint does not fit what a run's config.json makes."""
    if is_changed(read_object(file)):
        return f"{file} {CHANGED}"
    return "restore the code, or the config.json, that it was made with"


def is_signed(config: Mapping[str, Any]) -> bool:
    """Tells if a configuration has a signature, whoever made it."""
    return _SIGNATURE in config


def is_own(config: Mapping[str, Any]) -> bool:
    """Tells if srl wrote a run's configuration for this user."""
    given = config.get(_SIGNATURE)
    if not isinstance(given, str) or not given.isascii():
        return False
    with suppress(OSError):
        return hmac.compare_digest(given, _signature(unsigned(config), _key()))
    return False


def only_settings(name: str) -> ModuleType:
    """Imports a module of srl's that has settings.

    Raises:
        UserError: If it is any other module.
    """
    if not any(name == known or name.startswith(f"{known}.") for known in _SETTINGS):
        raise outside(name)
    return importlib.import_module(name)


def outside(name: str) -> UserError:
    """Gives the error for a folder that is not this user's own and needs more than srl's settings.

    Args:
        name: The module, library, or part of the experiment's file that would be loaded.
    """
    module, _, part = name.partition(":")
    if module == "experiment":
        name = f"{part} of its experiment.py".removeprefix(" of ")
    return UserError(
        f"its config.json names {name}, which is not part of srl, and srl does not know this run "
        f"as yours: to load it is to run its code. Look at it, and give {OPTION} if you trust it"
    )


def _key_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state, "srl", "key")


def _key(*, make: bool = False) -> bytes:
    """This user's key, 32 random bytes.

    Raises:
        OSError: If there is none, or others can read it.
    """
    file = _key_file()
    if make and not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = file.with_name(f"{secrets.token_hex(8)}.new")
        new.touch(mode=0o600)
        new.write_bytes(secrets.token_bytes(32))
        with suppress(FileExistsError):  # another process was faster
            os.link(new, file)
        new.unlink()
    with file.open("rb") as opened:
        status = os.fstat(opened.fileno())
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise PermissionError(0, "others can read it", str(file))
        return opened.read()


def _signature(config: Mapping[str, Any], key: bytes) -> str:
    return hmac.digest(key, _canonical(config), "sha256").hex()


def _digest(config: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(config)).hexdigest()


def _canonical(config: Mapping[str, Any]) -> bytes:
    return json.dumps(config, sort_keys=True).encode()
