"""Evaluation while a run trains: whole episodes of pinned versions, by a process beside the run.

`settings.py` holds what an experiment file gives; importing this package loads nothing else. The
learner offers a version at a time in the run's folder and finds its result there: `versions.py`.
`evaluator.py` is the process, which plays. `srl.run.evaluation` is the learner's side: which
version is offered when, which is the best, and whether the run has reached its target.
"""

from srl.evaluating.settings import Evaluation

__all__ = ["Evaluation"]
