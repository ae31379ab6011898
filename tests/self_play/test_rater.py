"""The versions of a pool play each other, and the better one is rated higher."""

from dataclasses import replace

from duels import DUEL

from srl.evaluation.rater import Rater
from srl.record.opponent_pool import OpponentPool
from srl.record.ratings import newest_ratings
from srl.system.background.cpu_limit import CpuLimit


def test_versions_that_win_are_rated_higher_for_both_sides(start, tmp_path):
    trainer = start(replace(DUEL, self_play=replace(DUEL.self_play, every=1)))
    for _ in range(2):
        trainer.update()
    rater = Rater(tmp_path, DUEL, CpuLimit(1.0, 1000))
    assert all(rater.play() for _ in range(3))
    newest = newest_ratings(tmp_path)
    assert newest["elo/version"] == 2
    assert newest["elo/games"] == 3 * 2 * 8
    trainer.update()
    assert rater.play()  # the newest against the first comes next
    following = newest_ratings(tmp_path)
    assert following["elo/version"] == 3
    for side in ("elo/cat", "elo/dog"):
        assert newest[side] > 200
    OpponentPool(tmp_path).drop(range(10))
    assert not rater.play()
