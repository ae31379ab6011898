"""Arrays in one safetensors file, complete or absent, with a checksum.

Checkpoints, past versions and exports are such files. Arrays have names such as
`learners/policy/params/policy/Dense_0/kernel`, so a file can be read without the code that made it,
and without srl: https://huggingface.co/docs/safetensors.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from srl.core.errors import expect
from srl.core.lazy import jax
from srl.core.types import Array, Tree
from srl.record.files import replacing

SUFFIX = ".safetensors"

_CHECKSUM = "checksum"  # its key in the metadata
_HEADER_BYTES = 256  # of each array, at most about
_NAMES = "bool bfloat16 float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64"
_CODES = "BOOL BF16 F16 F32 F64 I8 I16 I32 I64 U8 U16 U32 U64"  # what the format calls them
_TYPES = dict(zip(_NAMES.split(), _CODES.split(), strict=True))


class Unreadable(Exception):
    """A file that is absent or damaged; the text is the reason."""


def named_leaves(tree: Tree) -> dict[str, Array]:
    """The leaves of a tree by name, in its own order."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(p, simple=True, separator="/"): leaf for p, leaf in paths}


def copied_leaves(tree: Tree) -> dict[str, np.ndarray]:
    """Copies of the leaves of a tree by name; a later change of the tree does not reach them."""
    leaves = named_leaves(jax.device_get(tree))
    return {name: np.array(leaf, order="C") for name, leaf in leaves.items()}


def file_bytes(arrays: Mapping[str, Array]) -> int:
    """About the size of the file that `write` makes."""
    sized = (a if hasattr(a, "nbytes") else np.asarray(a) for a in arrays.values())
    return sum(array.nbytes + _HEADER_BYTES for array in sized)


def write(file: Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> str:
    """Writes a file that outlasts a loss of power; equal contents make equal files.

    The library's own writer is not used: its metadata have another order each time, and it reports
    a full disk as text.

    Args:
        file: In a folder that exists; what stood there stays until all is written.
        arrays: Contiguous, by name.
        metadata: Texts by name; the checksum is added.

    Returns:
        The checksum.

    Raises:
        OSError: If it cannot be written.
        UserError: If the format has no name for the type of an array.
    """
    for name, array in arrays.items():
        expect(array.dtype.name in _TYPES, f"the type of {name}", array.dtype.name, _NAMES)
    checksum = str(_checksum(arrays, metadata))
    texts = {**metadata, _CHECKSUM: checksum}
    header: dict[str, object] = {"__metadata__": dict(sorted(texts.items()))}
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))  # so each is aligned
    end = 0
    for name in names:
        array = arrays[name]
        begin, end = end, end + array.nbytes
        header[name] = {
            "dtype": _TYPES[array.dtype.name],
            "shape": array.shape,
            "data_offsets": (begin, end),
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with replacing(file, durable=True) as unfinished, unfinished.open("wb") as written:
        written.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            written.write(_bytes_of(arrays[name]))
    return checksum


def read(file: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays of a file by name, in the order of their names, and its metadata.

    Raises:
        Unreadable: If the file is absent, or is not what was written.
    """
    with _opened(file) as (opened, metadata, expected):
        arrays = {name: opened.get_tensor(name) for name in sorted(opened.keys())}
    if expected != str(_checksum(arrays, metadata)):
        raise Unreadable("its checksum does not match")
    return arrays, metadata


def read_header(file: Path) -> tuple[dict[str, str], str]:
    """The metadata of a file and the checksum that it should have; the arrays are not read.

    Raises:
        Unreadable: If the file is absent, or its header is damaged.
    """
    with _opened(file) as (_, metadata, expected):
        return metadata, expected


@contextmanager
def _opened(file: Path) -> Iterator[tuple[Any, dict[str, str], str]]:
    """An open file, its metadata, and the checksum that it should have."""
    from safetensors import SafetensorError, safe_open

    try:
        # Where a disk cannot read a page, a mapped file would end the process. An AttributeError is
        # of a type that NumPy does not know.
        with safe_open(file, framework="numpy", backend="pread") as opened:
            metadata = opened.metadata() or {}
            yield opened, metadata, metadata.pop(_CHECKSUM, "")
    except (OSError, SafetensorError, AttributeError) as error:
        raise Unreadable(" ".join(str(error).split())) from error


def _checksum(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> int:
    """CRC-32 of all names, types, arrays and metadata."""
    lines = [f"{n} {a.dtype} {a.shape} {zlib.crc32(_bytes_of(a))}" for n, a in arrays.items()]
    return zlib.crc32("\n".join(sorted([*lines, json.dumps(metadata, sort_keys=True)])).encode())


def _bytes_of(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
