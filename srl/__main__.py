"""`python -m srl` is the command `srl`."""

import os
import sys
from pathlib import Path

if not sys.flags.safe_path:
    # Python looks for modules in the current folder first, and may have found this one there.
    os.execv(sys.executable, [sys.executable, "-P", *sys.orig_argv[1:]])

from srl.api.cli import main
from srl.system.search_path import add_folder

add_folder(Path.cwd())
sys.exit(main())
