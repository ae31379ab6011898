"""What tests see of runs from outside: what these tell, and their processes."""

import ipaddress
import json
import os
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


def workers_of(controller):
    """Process ids of the workers that a process has started, by name."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == controller and b"srl.workers.main" in b"".join(words):
                spec = json.loads(words[-2])
                found[f"{spec['fragment']}-{spec['replica']}"] = int(entry.name)
    return found


def family(pid):
    """A process, its children, their children, and so on."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            words = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(words[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def listening(pid):
    """The addresses at which a process takes connections or datagrams from a network."""
    held = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            held.add(os.readlink(descriptor))
    found = set()
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]:
            words = line.split()
            free = words[2].strip("0") == ":"  # it is connected to nobody
            if free and f"socket:[{words[9]}]" in held:
                found.add(_address(words[1].partition(":")[0]))
    return found


def _address(digits):
    """An address as the kernel writes it: words of 32 bits, each in the machine's order."""
    words = [bytes.fromhex(digits[k : k + 8])[::-1] for k in range(0, len(digits), 8)]
    address = ipaddress.ip_address(b"".join(words))
    return str(getattr(address, "ipv4_mapped", None) or address)
