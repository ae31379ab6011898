"""Trackers: where numbers, histograms and films of a run go beside its folder.

`settings.py` holds what an experiment file gives; importing this package loads nothing else.
`tracker.py` is what a tracker is, with a file for each; `trackers.py` keeps all of a run.
"""

from srl.tracking.settings import Tracking

__all__ = ["Tracking"]
