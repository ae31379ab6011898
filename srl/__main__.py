"""`python -m srl` is the command `srl`."""

import sys

from srl.cli import main

sys.exit(main())
