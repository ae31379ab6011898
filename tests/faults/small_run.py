"""A program that trains by small workers: python small_run.py FOLDER UPDATES [FAULT ...]."""

import sys
from pathlib import Path

from small_roles import new_run

from srl.core.errors import UserError
from srl.launch.processes import train_in_processes


def main(path, updates, *faults):
    experiment, folder = new_run(Path(path), int(updates))
    for fault in faults:
        (folder.path / fault).touch()
    try:
        return train_in_processes(experiment, folder, role="small_roles:either")
    except UserError as error:
        sys.stderr.write(f"srl: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
