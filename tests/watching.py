"""What tests see of runs from outside: what these tell, and their processes."""

import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Account(NamedTuple):
    """What has become of all unrolls."""

    produced: int
    learned: int
    in_flight: int
    lost: int
    rolled_back: int


def account(told):
    """The last account in what a run has told, which has to add up."""
    line = re.findall(r"unrolls: .*", told)[-1]
    counts = Account(*(int(number) for number in re.findall(r"\d+", line.replace(",", ""))))
    assert counts.produced == sum(counts[1:])
    assert min(counts) >= 0
    return counts


def processes(fits):
    """Those of all hosts made of namespaces, too, whose words `fits` accepts."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if fits((entry / "cmdline").read_bytes().decode(errors="replace").split("\0")):
                found.append(int(entry.name))
    return found
