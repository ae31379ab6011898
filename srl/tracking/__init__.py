"""Trackers: where numbers, histograms and films of a run go beside its folder.

`tracker.py` is what a tracker is, with a file for each; `trackers.py` keeps all of a run.
"""
