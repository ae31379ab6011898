"""Puts the results of `srl bench gpu --out FOLDER` into the documents.

python tools/gpu_table.py [FOLDER]

FOLDER/gpu.json becomes docs/results/gpu.json, and docs/tuning.md gets its table. Without a folder
the table of docs/results/gpu.json is written again; where there is none, no row was ever run.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from srl.extras.bench.gpu import nothing_run
from srl.extras.bench.gpu_table import table

DOCS = Path(__file__).parents[1] / "docs"
BEGIN, END = "<!-- srl bench gpu -->\n", "<!-- end of srl bench gpu -->"


def main() -> None:
    """Writes both files."""
    parser = argparse.ArgumentParser(description="Puts results of srl bench gpu into docs/.")
    parser.add_argument("folder", nargs="?", type=Path, metavar="FOLDER")
    parser.add_argument("--docs", type=Path, default=DOCS, metavar="FOLDER")
    options = parser.parse_args()
    write(options.folder, options.docs)


def write(folder: Path | None, docs: Path) -> None:
    """Writes the results, with all rows that there are, and their table into the documents."""
    kept = docs / "results/gpu.json"
    source = folder / "gpu.json" if folder else kept
    found = json.loads(source.read_text()) if folder or kept.exists() else {}
    if found.get("machine") and found["machine"]["computes_on"] != "GPU":
        sys.exit(f"{source} was measured on a CPU, and the table is of GPUs")
    results = completed(found)
    kept.write_text(json.dumps(results, indent=1) + "\n")
    page = docs / "tuning.md"
    pattern = f"{re.escape(BEGIN)}.*?{re.escape(END)}"
    text, count = re.subn(
        pattern, lambda _: f"{BEGIN}\n{table(results)}\n{END}", page.read_text(), flags=re.DOTALL
    )
    if count != 1:
        sys.exit(f"{page} has no place for the table: {BEGIN.strip()} ... {END}")
    page.write_text(text)


def completed(found: dict[str, Any]) -> dict[str, Any]:
    """The results with the rows that were not run, or were not named, marked so."""
    results = nothing_run()
    known = {row["name"]: row for row in found.get("rows", ())}
    rows = [{**known.get(row["name"], row), "text": row["text"]} for row in results["rows"]]
    return {"machine": found.get("machine", {}), "rows": rows}


if __name__ == "__main__":
    main()
