"""Settings as plain values that JSON can hold, and settings made of such values again.

A dataclass carries its class under "type"; a callable is "module:name". Nothing is evaluated: what
a value names is imported, and a class has to be a dataclass.
"""

from __future__ import annotations

import importlib
import sysconfig
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum, EnumMeta
from functools import reduce
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import numpy as np

from srl.core.errors import UserError
from srl.core.settings import setting_types

FILE_MODULE = "srl_experiment_"
"""The prefix of the modules of experiment files, which have no place on the search path."""
_FILE = "experiment"  # in values, the experiment file

Import = Callable[[str], Any]
"""Gives the module of a name; raises ImportError."""


def config_values(value: Any) -> Any:
    """All values of settings, as nested dicts and lists that JSON can hold.

    Fields of a dataclass that can neither be given nor count as two are compared are none.
    """
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value) if field.init or field.compare]
        values = {name: config_values(getattr(value, name)) for name in names}
        return {"type": _import_path(type(value)), **values}
    if isinstance(value, Mapping):
        return {str(key): config_values(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):  # whose order is another in each process
        return sorted((config_values(item) for item in value), key=repr)
    if isinstance(value, list | tuple):
        return [config_values(item) for item in value]
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    return _import_path(value if hasattr(value, "__qualname__") else type(value))


def flat_values(values: Any, name: str = "") -> dict[str, Any]:
    """The values of nested settings by their whole names, such as `algorithm.unroll_length`."""
    if isinstance(values, Mapping) and values:
        inner = [flat_values(value, f"{name}.{key}".lstrip(".")) for key, value in values.items()]
        return {key: value for part in inner for key, value in part.items()}
    return {name: values}


def _import_path(value: Any) -> str:
    module = value.__module__
    return f"{_FILE if module.startswith(FILE_MODULE) else module}:{value.__qualname__}"


def made_from(
    values: Any, annotation: Any = Any, import_module: Import = importlib.import_module
) -> Any:
    """The settings that `config_values` made `values` of; where text may stand, text stays text.

    Args:
        values: As JSON holds them.
        annotation: Of the field that they are for.
        import_module: Gives the modules that values name.

    Raises:
        UserError: If a class cannot be imported, or has other settings now.
    """
    if isinstance(values, dict) and isinstance(values.get("type"), str):
        return _dataclass_from(values, import_module)
    if isinstance(values, dict):
        return {name: made_from(item, Any, import_module) for name, item in values.items()}
    kinds = get_args(annotation) if get_origin(annotation) in _UNIONS else (annotation,)
    if isinstance(values, list):
        kind = next((kind for kind in kinds if get_origin(kind) in (list, tuple)), tuple)
        made = [made_from(item, Any, import_module) for item in values]
        return made if list in (kind, get_origin(kind)) else tuple(made)
    if not isinstance(values, str) or str in kinds:
        return values
    for kind in kinds:
        if isinstance(kind, EnumMeta):
            return kind[values]
        if kind is Path:
            return Path(values)
        if (get_origin(kind) or kind) is Callable:
            return _callable(values, import_module)
    return values


def _callable(path: str, import_module: Import) -> Any:
    """Imports a function or class from the module that defines it, and from no other."""
    found, module = imported(path, import_module), path.partition(":")[0]
    if module != _FILE and getattr(found, "__module__", module) != module:
        raise UserError(f"{path} is defined in {found.__module__}; srl did not record it so")
    return found


_MOVED = {
    "srl.evaluating.settings": "srl.config.evaluation",
    "srl.experiment": "srl.config.experiment",
    "srl.self_play.fixed": "srl.config.fixed",
    "srl.self_play.settings": "srl.config.self_play",
    "srl.tracking.settings": "srl.config.tracking",
}
"""Modules of settings under their first names, and under their present ones."""


def renamed(values: Any) -> Any:
    """Gives an experiment's values of an earlier version with the present names of modules."""
    if isinstance(values, list):
        return [renamed(value) for value in values]
    if not isinstance(values, dict):
        return values
    result = {name: renamed(value) for name, value in values.items()}
    if isinstance(kind := result.get("type"), str):
        module, colon, name = kind.partition(":")
        result["type"] = f"{_MOVED.get(module, module)}{colon}{name}"
    return result


_UNIONS = (Union, types.UnionType)


def _dataclass_from(values: dict[str, Any], import_module: Import) -> Any:
    kind = imported(values["type"], import_module)
    module = values["type"].partition(":")[0]
    if not (isinstance(kind, type) and is_dataclass(kind) and module in (kind.__module__, _FILE)):
        raise UserError(f"{values['type']} is no class of settings (a dataclass)")
    annotations = setting_types(kind)
    settable = {field.name for field in fields(kind) if field.init}
    given = {name: item for name, item in values.items() if name in settable}
    unknown = values.keys() - {field.name for field in fields(kind)} - {"type"}
    if unknown:
        raise UserError(
            f"{values['type']} has no {', '.join(sorted(unknown))} here; install the version of it "
            "that the settings were written with"
        )
    made = {
        name: made_from(item, annotations.get(name, Any), import_module)
        for name, item in given.items()
    }
    try:
        return kind(**made)
    except TypeError as error:  # a setting without a default is missing
        raise UserError(f"{values['type']} cannot be made of its settings: {error}") from error


def imported(path: str, import_module: Import = importlib.import_module) -> Any:
    """Imports the object that "module:name" names.

    Raises:
        UserError: If there is no such module, or nothing of that name in it.
    """
    module, _, name = path.partition(":")
    try:
        return reduce(getattr, name.split("."), import_module(module))
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"{path} cannot be imported: {error}") from error


def unreachable(name: str, value: Any) -> Iterator[str]:
    """Finds the parts of a value that no other process can remake, each with the setting's name."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from unreachable(f"{name}[{key!r}]", item)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from unreachable(f"{name}[{number}]", item)
    elif is_dataclass(value) and not isinstance(value, type):
        if not _importable(type(value)):
            yield f"{name} is of the class {_place(type(value))}"
        for field in fields(value):
            yield from unreachable(f"{name}.{field.name}", getattr(value, field.name))
    elif callable(value) and hasattr(value, "__qualname__"):
        if not _importable(value) or "." in value.__qualname__:
            yield f"{name} is {_place(value)}"
    elif isinstance(value, Enum):
        yield from unreachable(name, type(value))
    elif not isinstance(value, None | bool | int | float | str | Path | np.generic):
        yield f"{name} is {value!r}"


def _importable(value: Any) -> bool:
    """Tells if another process finds the same object under the same name."""
    module = value.__module__
    if module == "__main__" or module.startswith(FILE_MODULE):
        return False
    try:
        return imported(f"{module}:{value.__qualname__}") is value
    except UserError:
        return False


def _place(value: Any) -> str:
    """A class or function, and where it is, in words."""
    name, module = value.__qualname__, value.__module__
    if "<lambda>" in name:
        return "a lambda"
    if "<locals>" in name:
        return f"{name.rpartition('.')[2]}, which is inside of a function"
    return f"{name} of {'the script or notebook' if module == '__main__' else module}"


def import_folders(value: Any) -> set[Path]:
    """The folders that have to be on the search path for the modules which a value names."""
    found: set[Path] = set()
    if isinstance(value, Mapping):
        return found.union(*map(import_folders, value.values()))
    if isinstance(value, list | tuple):
        return found.union(*map(import_folders, value))
    if is_dataclass(value) and not isinstance(value, type):
        inner = (import_folders(getattr(value, field.name)) for field in fields(value))
        return _folder_of(type(value)).union(*inner)
    return _folder_of(value) if hasattr(value, "__qualname__") else found


def _folder_of(value: Any) -> set[Path]:
    module = importlib.import_module(value.__module__)
    file = getattr(module, "__file__", None)
    installed = tuple(sysconfig.get_paths().values())
    if file is None or file.startswith(installed) or module.__name__.startswith("srl."):
        return set()
    path, depth = Path(file).resolve(), module.__name__.count(".")
    return {path.parents[depth + (path.name == "__init__.py")]}
