"""Self-play: matches against past versions of the policies, and ratings of these versions.

`settings.py` holds what an experiment file gives, and `fixed.py` what it gives for agents that a
fixed policy of another run plays; importing this package loads nothing else.
`pairings.py` decides which slots past versions play, `league.py` which versions these are, out of
the files of `opponent_pool.py`; `past_matches.py` counts the results. `rater.py` is a process
beside the run (`srl.beside`) that computes the ratings of `ratings.py`.
"""

from srl.self_play.fixed import Fixed
from srl.self_play.settings import SelfPlay

__all__ = ["Fixed", "SelfPlay"]
