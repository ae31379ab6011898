"""The evaluator of a run on a cluster: python -P -m srl.launch.engines.evaluator_main RUN_DIR.

An engine starts it on a host that sees the run's folder and has a core for it alone, so that it
need not rest. It ends with the run.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from srl.evaluation.background import evaluator
from srl.launch.submit import goes_on
from srl.record.run_record import RunFolder
from srl.record.versions import Versions
from srl.run.status import read_outcome

logger = logging.getLogger(__name__)

_LOOK_SECONDS, _ASK_SECONDS = 1.0, 60.0


def main(argv: Sequence[str]) -> int:
    """Evaluates versions of a run, whose folder is the argument, until it has ended; gives 0."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    folder = RunFolder(Path(argv[0]))
    versions, next_ask = Versions(folder.path), time.monotonic() + _ASK_SECONDS
    with evaluator(folder.path, logger.error, nice=0):
        while read_outcome(folder.path) is None and not versions.given_up:
            time.sleep(_LOOK_SECONDS)
            if time.monotonic() > next_ask:
                next_ask = time.monotonic() + _ASK_SECONDS
                if not goes_on(folder):  # its controller was ended, and could not record that
                    break
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
