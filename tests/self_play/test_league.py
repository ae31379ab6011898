"""Matches with past selves: who plays, for how long, and what is learned from."""

import contextlib
from dataclasses import replace

import jax
import numpy as np
import pytest
from duels import DUEL, LONGEST, take_duels
from small_runs import GAME, assert_same, train

from srl import SelfPlay, UserError
from srl.algorithms import PPO
from srl.dataflow import plans
from srl.loop.make_training import make_training
from srl.networks import MLP
from srl.record.checkpoint import Checkpoints
from srl.record.opponent_pool import OpponentPool

CAT, DOG = 0, 1
PLAYED = [None, "cat", None, "dog"]  # the side that is past, by the environment's number
T, HOLD = DUEL.algorithm.unroll_length, DUEL.self_play.hold


@pytest.fixture
def duels(start):
    """What was done in 20 updates, by environment; and the last report."""

    def play(repeat=1, **changes):
        settings = replace(DUEL.self_play, **changes)
        algorithm = replace(DUEL.algorithm, repeat=repeat)
        take_duels()  # of other tests
        trainer = start(replace(DUEL, self_play=settings, algorithm=algorithm))
        reports = train(trainer, 20)
        return take_duels(), reports[-1], settings

    return play


def rows_of(played):
    """(environment, row in the run, episode's rows so far, what each agent did) of every step."""
    for env, duel in enumerate(played):
        row = 0
        for episode in duel.episodes:
            for step, actions in enumerate(episode):
                yield env, row + step, episode[:step], actions
            row += len(episode) + 1  # the step that begins anew is one, too


def test_present_policies_play_all_that_is_not_past(duels):
    played, report, _ = duels()
    assert len(played) == 8
    for env, row, before, actions in rows_of(played):
        for agent, side in enumerate(("cat", "dog")):
            if PLAYED[env % 4] != side:
                assert actions[agent] == (row // T, len(before))
    assert report["loss/strangers"] == 0, "what past versions did was learned from"
    assert report["loss/slots"] == 8 * 2 - 4


def test_an_opponent_is_one_of_the_pool_and_stays_for_the_episode(duels):
    played, report, settings = duels()
    met = set()
    for env, row, before, actions in rows_of(played):
        if (side := PLAYED[env % 4]) is None:
            continue
        agent = ("cat", "dog").index(side)
        version, remembered = actions[agent]
        assert remembered == len(before)
        begun = (row - len(before)) // T  # the update in which the episode began
        number = begun // HOLD
        assert version == settings.opponents(DUEL.seed, number, number * HOLD)[0]
        assert all(then[agent][0] == version for then in before)
        met.add(version)
    assert len(met) > 2
    assert report["past/outlived"] == 0
    assert report["past/version"] == settings.opponents(DUEL.seed, 20 // HOLD, 18)[0]


@pytest.mark.parametrize("repeat", [1, 2])
def test_who_outlives_its_opponent_forgets_and_is_counted(duels, caplog, repeat):
    played, report, _ = duels(repeat, hold=1)
    swaps = episodes = 0
    for env, duel in enumerate(played):
        if (side := PLAYED[env % 4]) is None:
            continue
        agent = ("cat", "dog").index(side)
        for number, episode in enumerate(filter(None, duel.episodes)):
            acted = episode[::repeat]  # what follows repeats it
            versions, remembered = zip(*(actions[agent] for actions in acted), strict=True)
            swapped = 0
            for step in range(1, len(acted)):
                if remembered[step] == 0:
                    swapped += 1
                else:
                    assert remembered[step] == remembered[step - 1] + 1
                    assert versions[step] == versions[step - 1]
            swaps += swapped
            episodes += swapped > 0 and number < duel.ended
    assert swaps > 0
    assert report["past/outlived"] == episodes
    assert caplog.text.count("an episode took longer than its past opponent stays") == 1


@pytest.mark.parametrize("staleness", [0, 3])
def test_opponents_stay_for_the_episode_however_stale_parameters_are(tmp_path, staleness):
    settings = replace(DUEL.self_play, hold=HOLD + staleness)
    take_duels()  # of other tests
    trainer = make_training(
        replace(DUEL, self_play=settings, plan=plans.threads(2), max_staleness=staleness)
    )
    trainer.folder = tmp_path
    with contextlib.closing(trainer):
        trainer.start()
        report = train(trainer, 40)[-1]
    met = set()
    for env, _, before, actions in rows_of(take_duels()):
        if (side := PLAYED[env % 4]) is not None:
            agent = ("cat", "dog").index(side)
            assert actions[agent][1] == len(before)
            assert all(then[agent][0] == actions[agent][0] for then in before)
            met.add(actions[agent][0])
    assert len(met) > 1
    assert report["past/outlived"] == 0


def test_results_of_past_matches_are_told_apart(duels):
    played, report, _ = duels()
    ended = [duel.ended for duel in played]
    assert report["episodes"] == sum(ended[env] for env in (0, 2, 4, 6))
    assert report["past/cat/episodes"] == ended[1] + ended[5]
    assert report["past/dog/episodes"] == ended[3] + ended[7]
    assert report["past/cat/episode_return/dog"] > 0 < report["past/dog/episode_return/cat"]
    assert report["episode_return/cat"] == 0
    assert 3 <= report["past/cat/episode_length"] <= LONGEST


def test_the_pool_is_on_disk_and_thinned(start, tmp_path):
    train(start(DUEL), 20)
    pool = OpponentPool(tmp_path)
    assert pool.versions() == list(DUEL.self_play.pool(20)) == [0, 8, 16, 20]


def test_what_a_checkpoint_on_its_way_to_the_disk_chose_from_stays(start, tmp_path):
    trainer = start(DUEL)
    train(trainer, 4)
    trainer.state()
    train(trainer, 16)
    assert OpponentPool(tmp_path).versions() == [0, 2, 4, 8, 16, 20]


def test_without_a_share_only_the_pool_is_kept(start, tmp_path):
    trainer = start(replace(DUEL, self_play=replace(DUEL.self_play, past=0)))
    report = train(trainer, 4)[-1]
    assert report["past/pool"] == 3
    assert "past/version" not in report
    assert OpponentPool(tmp_path).versions() == [0, 2, 4]


def test_an_opponent_that_cannot_be_read_is_passed_over(start, tmp_path, caplog):
    trainer = start(DUEL)
    train(trainer, 8)
    order = DUEL.self_play.opponents(DUEL.seed, 3, 9)
    path = tmp_path / "opponents" / f"{order[0]}.safetensors"
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(bytes(damaged))
    (tmp_path / "opponents" / f"{order[1]}.safetensors").unlink()
    report = train(trainer, 1)[-1]
    assert report["past/version"] == order[2]
    assert f"{path} is damaged (its checksum does not match); another one plays" in caplog.text
    assert "is missing; another one plays" in caplog.text


def test_hard_opponents_are_those_that_win_most():
    settings = SelfPlay(every=1, keep=4, choice="hard")
    rates = {0: 1.0, 1: 1.0, 2: 0.0, 3: 1.0}
    first = [settings.opponents(7, number, 3, rates)[0] for number in range(200)]
    assert first.count(2) > 190
    assert len({settings.opponents(7, number, 3)[0] for number in range(50)}) == 4
    assert settings.opponents(7, 5, 3, rates) == settings.opponents(7, 5, 3, rates)
    assert sorted(settings.opponents(7, 5, 3, rates)) == [0, 1, 2, 3]


def test_matches_against_the_past_are_won_by_the_newer_version(start):
    settings = replace(DUEL.self_play, choice="hard")
    reports = train(start(replace(DUEL, self_play=settings)), 20)
    rates = [report["past/win_rate"] for report in reports if report["past/win_rate"] is not None]
    assert min(rates) >= 0.5
    assert max(rates) > 0.5


def test_hard_opponents_and_several_learners_do_not_go_together():
    settings = replace(PAST_GAME.self_play, choice="hard")
    wrong = replace(PAST_GAME, self_play=settings, plan=plans.replicated(2))
    with pytest.raises(UserError, match="one learner, and the plan 'replicated' has 2"):
        wrong.validate()


# ---- the same run, however it is run ----

PAST_GAME = replace(
    GAME,
    algorithm=PPO(network=MLP(width=8, depth=1), unroll_length=8, epochs=1, minibatches=1),
    policies={"*": "policy"},
    num_envs=8,
    groups=2,
    plan=plans.replicated(1),
    self_play=SelfPlay(past=0.5, every=1, keep=3, hold=1, evaluate=0),
)
"""One policy for both sides; episodes outlive their opponents."""


@pytest.mark.parametrize("choice", [pytest.param("uniform", marks=pytest.mark.slow), "hard"])
def test_a_stopped_run_resumes_bitwise(start, tmp_path, choice):
    game = replace(PAST_GAME, self_play=replace(PAST_GAME.self_play, choice=choice))
    whole = start(game, folder=tmp_path)
    train(whole, 3)
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    checkpoints.save(3, whole.state(), {}, wait=True)
    reports = train(whole, 5)  # whose versions the resumed run forgets
    assert reports[-1]["past/outlived"] > 0

    resumed = start(game, folder=tmp_path)
    tree, _ = checkpoints.restore(3, like=resumed.state())
    checkpoints.close()
    resumed.restore(tree)
    assert OpponentPool(tmp_path).versions()[-1] == 3
    assert train(resumed, 5) == reports
    assert_same(whole.state()["learners"], resumed.state()["learners"])


def parameters(trainer):
    leaves = jax.tree.leaves({n: s["params"] for n, s in trainer.state()["learners"].items()})
    return np.concatenate([np.ravel(leaf) for leaf in leaves])


@pytest.mark.parametrize(
    "plan",
    [plans.fused(), pytest.param(plans.threads(1), marks=pytest.mark.slow)],
    ids=lambda plan: plan.name,
)
def test_plans_of_one_process_train_as_the_plain_loop_does(start, tmp_path, plan):
    experiment = replace(PAST_GAME, groups=1)
    ours = start(replace(experiment, plan=plan), make_training, tmp_path / "ours")
    plain = start(experiment, folder=tmp_path / "plain")
    told, expected = train(ours, 5)[-1], train(plain, 5)[-1]
    a, b = parameters(ours), parameters(plain)
    assert np.linalg.norm(a - b) / np.linalg.norm(b) < 1e-5
    for name in (name for name in expected if name.startswith(("past/", "episode"))):
        assert told[name] == (expected[name] and pytest.approx(expected[name])), name


def test_an_environment_without_a_limit_needs_to_be_told(start):
    experiment = replace(DUEL, self_play=replace(DUEL.self_play, hold=None))
    with pytest.raises(UserError, match="does not say how long an episode may be; give"):
        start(experiment)
