"""Runs fuzzed inputs: imports of srl that atheris can see into, and the fuzzer's loop."""

import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib.util import spec_from_file_location

import atheris


class PlainFinder:
    """Finds the modules of srl as others do, but with Python's own loader.

    An editable install wraps that loader, so that atheris has no code to instrument: it would say
    that it instruments a module, and see nothing of what runs in it.
    """

    def __init__(self, finders):
        self.finders = finders

    def find_spec(self, name, path=None, target=None):
        for finder in self.finders if name.partition(".")[0] == "srl" else ():
            if (spec := finder.find_spec(name, path, target)) and spec.origin:
                folders = spec.submodule_search_locations
                return spec_from_file_location(
                    name, spec.origin, submodule_search_locations=folders
                )
        return None


def instrumented() -> AbstractContextManager[None]:
    """In its block imports of srl count for coverage."""
    sys.meta_path.insert(0, PlainFinder(tuple(sys.meta_path)))
    return atheris.instrument_imports(include=["srl"])


def fuzz(readers: Sequence[Callable[[atheris.FuzzedDataProvider], None]]) -> None:
    """Lets each input be read by one of the readers; takes libFuzzer's options from argv."""
    from srl.streams.transport.message import Refused

    def read_one(data: bytes) -> None:
        provider = atheris.FuzzedDataProvider(data)
        try:
            readers[provider.ConsumeIntInRange(0, len(readers) - 1)](provider)
        except Refused:
            pass

    logging.disable()  # of refusals
    atheris.Setup(sys.argv, read_one)
    atheris.Fuzz()
