"""The results of `srl bench gpu` as a table in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from srl.core.console.number_text import number_text

NOT_RUN = "not run"


def table(results: Mapping[str, Any]) -> str:
    """The text of the content of gpu.json: the machine's name and a table of all rows."""
    lines = [_machine(results["machine"]), ""]
    lines += ["| row | | value | of the pool | GPU busy | compiling | first report |"]
    lines += ["|---|---|---|---|---|---|---|"]
    lines += [f"| {' | '.join(_cells(row))} |" for row in results["rows"]]
    return "\n".join(lines) + "\n"


def _machine(machine: Mapping[str, Any]) -> str:
    if not machine:
        return "No machine with a GPU has run them yet."
    gpus = ", ".join(machine["gpus"]) or "no GPU"
    return (
        f"{gpus}; {machine['cores']} cores ({machine['processor']}); JAX {machine['jax']} on the "
        f"{machine['computes_on']}; srl {machine['srl']}; {machine['date']}"
    )


def _cells(row: Mapping[str, Any]) -> list[str]:
    cells = [f"`{row['name']}`", row["text"]]
    if "value" not in row:
        return [*cells, row["state"], "", "", "", ""]
    pool, load = row.get("pool"), row.get("gpu_load")
    share = f"{100 * row['value'] / pool:.0f} %" if pool else ""
    busy = f"{load:.0f} %" if load is not None else ""
    times = [row.get("compile_seconds"), row.get("first_report_seconds")]
    value = f"{value_text(row['value'])} {row['unit']}".strip()
    return [*cells, value, share, busy, *("" if x is None else f"{x:.1f} s" for x in times)]


def value_text(value: float | str | Sequence[float]) -> str:
    """A row's value as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return " / ".join(map(number_text, value))
    return number_text(value)
