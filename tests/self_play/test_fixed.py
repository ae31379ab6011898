"""Agents that a fixed policy of another run plays: who acts, what is learned, what is recorded."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from duels import DUEL, Equals, Halved, Masked, WideDuel, take_duels
from small_runs import GAME, assert_same, train

import srl
from srl import Evaluation, Fixed, SelfPlay, UserError
from srl.algorithms import DQN, PPO
from srl.config.experiment import load_experiment, resolved_value, with_overrides
from srl.dataflow import plans
from srl.loop.make_training import make_training
from srl.networks import MLP
from srl.run.folder import create_run, open_run

CAT, DOG = 0, 1
ALONE = replace(DUEL, self_play=None, num_envs=4, plan="threads", keep_checkpoints=10)


def trained(experiment, folder, updates=3, **settings):
    take_duels()  # of other runs
    return srl.train(replace(experiment, updates=updates), run_dir=folder, quiet=True, **settings)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A run whose dogs are of version 3, with the versions 1 and 3 on disk."""
    return trained(
        replace(ALONE, policies={"cat": "cats", "dog": "dogs"}),
        tmp_path_factory.mktemp("fixed") / "source",
    ).path


@pytest.fixture
def own_source(source, tmp_path):
    """A copy of the run, which a test may change."""
    return shutil.copytree(source, tmp_path / "source")


def against(source, version="latest", **changes):
    """An experiment that trains cats alone."""
    policies = {"dog": Fixed(source, version), "c*": "cats"}
    return replace(ALONE, policies=policies, **changes)


def actions():
    """(row in the run, steps of the episode before, what each agent did) of every step."""
    for duel in take_duels():
        row = 0
        for episode in duel.episodes:
            for step, did in enumerate(episode):
                yield row + step, step, did
            row += len(episode) + 1  # the step that begins anew is one, too


@pytest.mark.parametrize("plan", ["threads", "inline"])
def test_a_fixed_policy_plays_its_agents_and_only_the_others_learn(source, tmp_path, plan):
    run = trained(against(source), tmp_path / "run", plan=plan)
    played = list(actions())
    assert len(played) > 30 or plan == "inline"  # which steps in other processes
    for row, step, did in played:
        assert did[DOG] == (3, step), "a version and memory that are not the fixed policy's"
        assert did[CAT] == (row // ALONE.algorithm.unroll_length, step)
    assert run.last["loss/slots"] == ALONE.num_envs
    assert run.last["loss/strangers"] == 0, "what the fixed policy did was learned from"
    assert run.last["episode_return/cat"] == -run.last["episode_return/dog"]
    agent = srl.load(run.path)
    assert list(agent.policies) == ["cats"]
    with pytest.raises(UserError, match="dog was played by a fixed policy of another run"):
        agent.act({"dog": np.zeros(1, np.float32)})


def test_the_fixed_policy_plays_in_evaluations_too(source, tmp_path):
    beside = Evaluation(episodes=2, actions="sampled", share=1)
    run = trained(against(source, 1, evaluation=beside), tmp_path / "run")
    evaluated = next(line for line in run.metrics if "eval/return" in line)
    assert evaluated["eval/return/cat"] > 0 > evaluated["eval/return/dog"]
    take_duels()
    found = run.evaluate(episodes=4)
    assert {did[DOG][0] for *_, did in actions()} == {1}
    assert found["results"]["episode_return/cat"]["mean"] > 0, "version 3 beats version 1"
    assert "episode_return/cat" in found.text


def test_only_trained_policies_are_compared_and_the_fixed_one_plays_all_the_while(source, tmp_path):
    run = trained(against(source, 1), tmp_path / "run")
    take_duels()
    found = run.evaluate(against="untrained", episodes=4)
    assert {did[DOG][0] for *_, did in actions()} == {1}
    casts = [match["cast"] for match in found["matches"]]
    assert casts == [{"cat": "ours", "dog": "fixed"}, {"cat": "other", "dog": "fixed"}]
    (cats,) = found["comparisons"]
    assert cats["kind"] == "cat"
    assert cats["ours"] > 0 > cats["other"], "version 3 beats version 1, which beats version 0"
    assert found["fixed"] == {"dog": {"run": str(source), "version": 1}}
    lines = found.text.splitlines()
    assert f"fixed     dog: {source}, version 1" in lines
    assert next(line for line in lines if "ours" in line).split() == [
        *("cats:", "ours", "cats:", "untrained")
    ]
    assert "Our cats do better against fixed dogs than untrained cats do" in found.text


def test_agents_of_one_kind_are_compared_without_those_that_are_fixed(tmp_path):
    equals = replace(ALONE, env=Equals)
    source = trained(replace(equals, policies={"*": "all"}), tmp_path / "source").path
    policies = {"ally_1": Fixed(source, 1), "*": "all"}
    beside = Evaluation(episodes=2, actions="sampled", share=1)
    run = trained(replace(equals, policies=policies, evaluation=beside), tmp_path / "run")
    assert next(line for line in run.metrics if "eval/return" in line)["eval/return/ally"] > 0
    assert run.last["episode_return/ally"] == -run.last["episode_return/fixed_ally"] != 0
    found = run.evaluate(against="untrained", episodes=4)
    (allies,) = found["comparisons"]
    assert allies["ours"] > 0 > allies["other"]
    assert "Our allies do better against fixed allies than untrained allies do" in found.text


def test_a_past_version_of_a_pool_of_opponents_plays(tmp_path):
    settings = SelfPlay(past=0, every=2, evaluate=0)
    past = trained(replace(ALONE, self_play=settings), tmp_path / "past", 6).path
    trained(against(past, 2), tmp_path / "run")
    assert {did[DOG][0] for *_, did in actions()} == {2}


def test_the_best_version_plays(own_source, tmp_path):
    checkpoints = own_source / "checkpoints"
    shutil.copy(checkpoints / "1.safetensors", checkpoints / "best.safetensors")
    assert resolved_value(against(own_source, "best")).experiment.fixed["dog"].version == 1
    (checkpoints / "1.safetensors").unlink()
    trained(against(own_source, 1), tmp_path / "run")
    assert {did[DOG][0] for *_, did in actions()} == {1}


def test_a_run_records_which_version_plays_and_goes_on_with_it(own_source, tmp_path):
    experiment = against(own_source)
    run = trained(experiment, tmp_path / "run", 2)
    recorded = json.loads((run.path / "config.json").read_text())["experiment"]["policies"]["dog"]
    assert (recorded["run"], recorded["version"]) == (str(own_source), 3)
    assert recorded["weights"]
    srl.Run(own_source).resume(env_steps=5 * 16, quiet=True)
    take_duels()
    trained(experiment, run.path, 4, resume=True)
    assert {did[DOG][0] for *_, did in actions()} == {3}
    assert resolved_value(experiment).experiment.fixed["dog"].version == 5


def test_of_a_folder_of_runs_the_newest_plays_and_the_run_goes_on_with_that_one(
    source, tmp_path, caplog
):
    several = tmp_path / "several"
    first = shutil.copytree(source, several / "first")
    experiment = against(several)
    run = trained(experiment, tmp_path / "run", 2)
    recorded = json.loads((run.path / "config.json").read_text())["experiment"]["policies"]["dog"]
    assert recorded["run"] == str(first)
    assert f"using {first}, the newest of the runs (1) in {several}" in caplog.text
    second = shutil.copytree(source, several / "second")
    (second / "config.json").touch()
    (second / "checkpoints" / "3.safetensors").unlink()
    create_run(resolved_value(ALONE), several / "third")  # without a checkpoint
    assert resolved_value(experiment).experiment.fixed["dog"].run == str(second)
    trained(experiment, run.path, 4, resume=True)
    assert {did[DOG][0] for *_, did in actions()} == {3}


def test_a_stopped_run_resumes_bitwise(start, tmp_path):
    ppo = PPO(network=MLP(width=8, depth=1), unroll_length=8, epochs=1, minibatches=1)
    remembers = replace(ppo, network=MLP(width=8, depth=1, memory=2), chunk=8)
    game = replace(GAME, algorithm=remembers, policies={"*": "all"}, plan=plans.replicated(1))
    source = trained(game, tmp_path / "source", 1).path
    policies = {"seeker*": Fixed(source), "*": "hiders"}
    game = resolved_value(replace(game, algorithm=ppo, policies=policies)).experiment

    whole, stopped, resumed = (start(game) for _ in range(3))
    reports = train(whole, 5)
    train(stopped, 2)
    resumed.restore(stopped.state())
    assert train(resumed, 3) == reports[2:]
    assert_same(whole.state()["learners"], resumed.state()["learners"])


def test_a_run_goes_on_when_the_other_run_is_gone(own_source, tmp_path):
    experiment = against(own_source)
    trained(experiment, tmp_path / "begun", 2)
    shutil.rmtree(own_source)
    (tmp_path / "begun").rename(tmp_path / "moved")
    srl.Run(tmp_path / "moved").resume(env_steps=4 * 16, quiet=True)
    srl.evaluate(tmp_path / "moved", episodes=2)
    trained(experiment, tmp_path / "moved", 6, resume=True)
    assert {did[DOG][0] for *_, did in actions()} == {3}


def test_a_run_does_not_go_on_with_other_weights(source, tmp_path):
    folder = create_run(resolved_value(against(source)), tmp_path / "run")
    copy = folder.fixed_copy("dog") / "checkpoints" / "3.safetensors"
    shutil.copy(source / "checkpoints" / "1.safetensors", copy)
    with pytest.raises(UserError, match="has other weights than this run began with"):
        open_run(folder.path, to_train=True)
    copy.unlink()
    with pytest.raises(UserError, match="run/fixed/dog has no version 3 that can be read; it has"):
        open_run(folder.path, to_train=True)


def test_a_run_does_not_go_on_with_another_policy(own_source, tmp_path):
    run = create_run(resolved_value(against(own_source)), tmp_path / "run").path
    another = shutil.copytree(own_source, tmp_path / "another" / "source")
    for other in (against(another), against(own_source, 1)):
        with pytest.raises(UserError, match=r"began with policies.dog.\w+=.*, but"):
            srl.train(other, run_dir=run, resume=True, quiet=True)


def test_a_policy_that_cannot_be_copied_leaves_no_folder(own_source, tmp_path):
    resolved = resolved_value(against(own_source))
    (own_source / "specs.json").unlink()
    with pytest.raises(UserError, match=r"cannot copy .*source/specs.json, of the fixed policy"):
        create_run(resolved, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_overrides_choose_the_version(source, tmp_path):
    file = tmp_path / "against.py"
    file.write_text(
        "from srl import Experiment, Fixed\n"
        f"policies = {{'dog': Fixed({str(source)!r}), '*': 'cats'}}\n"
        "experiment = Experiment(name='against', env='CartPole-v1', policies=policies)\n"
    )
    words = ["--policies.dog.version", "1"]
    made = resolved_value(against(source))
    for chosen in (load_experiment(str(file), words), with_overrides(made, words)):
        assert chosen.experiment.fixed["dog"].version == 1


@pytest.mark.parametrize(
    ("policies", "text"),
    [
        ({"dog": Fixed("/nowhere"), "*": "cats"}, "'dog'.: /nowhere is not the folder of a run"),
        ({"dog": "{source}:7", "*": "cats"}, "has no version 7 that can be read; there are 1, 3"),
        ({"dog": "{source}:first", "*": "cats"}, "version is 'first'; expected latest, best or"),
        ({"dog": "{source}", "cat": "{source}"}, "so that none is left to train"),
    ],
)
def test_what_cannot_play_is_refused_as_the_experiment_is_loaded(source, policies, text):
    def made(policy):
        if not str(policy).startswith("{"):
            return policy
        run, _, version = policy.format(source=source).partition(":")
        return Fixed(run, int(version) if version.isdigit() else version or "latest")

    policies = {pattern: made(policy) for pattern, policy in policies.items()}
    with pytest.raises(UserError, match=text):
        resolved_value(replace(ALONE, policies=policies))


def test_self_play_and_fixed_policies_do_not_go_together(source):
    with pytest.raises(UserError, match="a fixed policy plays dog, and self_play is for agents"):
        against(source, self_play=SelfPlay()).validate()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"policies": {"bird": "source", "*": "cats"}}, "plays no agent: the pattern fits none of"),
        ({"env": WideDuel}, "differs from this run's in its observations"),
    ],
)
def test_what_does_not_fit_the_environments_is_refused_as_they_are_made(
    source, start, changes, text
):
    policies = changes.get("policies", {"dog": "source", "*": "cats"})
    policies = {k: Fixed(source) if v == "source" else v for k, v in policies.items()}
    experiment = resolved_value(replace(ALONE, **{**changes, "policies": policies})).experiment
    with pytest.raises(UserError, match=text):
        start(experiment)


def test_a_policy_of_another_algorithm_plays_with_its_frames_and_masks(start, tmp_path):
    network = MLP(width=8)
    dqn = DQN(network=network, unroll_length=8, batch_size=8, warm_up=8, replay=64, frame_stack=2)
    masked = replace(ALONE, env=Masked, algorithm=dqn)
    source = trained(masked, tmp_path / "source").path
    policies = {"dog": Fixed(source), "*": "cats"}
    ppo = PPO(network=network, unroll_length=8, minibatches=2)
    experiment = resolved_value(replace(masked, algorithm=ppo, policies=policies)).experiment
    trainer = start(experiment, make_training)
    trainer.update()
    (part,) = trainer.learner.policy_set.opponents.parts
    agent = srl.load(source)
    assert_same(part.policy, agent.policies["policy"])
    assert part.instance.config == agent.instances["policy"].config


def test_a_policy_that_counts_actions_otherwise_is_refused(start, tmp_path):
    source = trained(replace(ALONE, algorithm=Halved(unroll_length=4)), tmp_path / "source").path
    experiment = resolved_value(against(source)).experiment
    with pytest.raises(UserError, match="Halved, by which a fixed policy was trained, counts"):
        start(experiment)
