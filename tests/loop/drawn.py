"""Loops that are drawn, each as a line of text."""

from dataclasses import dataclass, replace

from srl import Experiment, Fragment, Plan
from srl.algorithms import DQN, PPO
from srl.algorithms.ppo import PPOInstance
from srl.core.lazy import jnp
from srl.core.schedule import Schedule
from srl.networks import MLP


@dataclass(frozen=True)
class Program:
    """A loop.

    Its program has parts such as `8,4:2`: with one policy, unrolls of 8 and of 4 steps; then, of
    each, two calls of `learn`. In every second unroll a step is collected before it is taken.
    """

    program: str = "8:1"
    order: str = "backward"
    """In which a part's unrolls are gathered; `interleaved` learns from each before the next."""
    repeat: int = 1
    """Steps with each action."""
    taught: float = 0.0
    """The weight of a teacher's advice, which is added to the rewards."""

    def loop(self, run):
        for part in self.program.split():
            lengths, _, learns = part.partition(":")
            policy = run.latest()
            unrolls = [
                self.unroll(run, policy, int(word), number % 2 == 1)
                for number, word in enumerate(lengths.split(","))
            ]
            if self.order == "interleaved":
                for unroll in unrolls:
                    self.learn(run, run.gather(unroll), int(learns))
                continue
            if self.order == "backward":
                unrolls.reverse()
            for batch in [run.gather(unroll) for unroll in unrolls]:
                self.learn(run, batch, int(learns))

    def learn(self, run, batch, times):
        for _ in range(times):
            run.learn(batch)

    def unroll(self, run, policy, length, collects_first):
        def interact(timestep, memory):
            decision = run.act(policy, timestep, memory)
            advice = run.teach(timestep) if self.taught else None
            if collects_first:
                row = run.collect(timestep, decision, advice)
                return run.step(decision.action, self.repeat), decision.memory, row
            following = run.step(decision.action, self.repeat)
            return following, decision.memory, run.collect(timestep, decision, advice)

        return run.unroll(interact, length)


@dataclass(frozen=True)
class Drawn(Program, PPO):
    """PPO with a loop of its own."""

    @property
    def instance(self):
        return DrawnInstance


@dataclass(frozen=True)
class Replayed(Program, DQN):
    """DQN with a loop of its own."""


class DrawnInstance(PPOInstance):
    """PPO whose rewards are shaped by a teacher who likes poles that lean to neither side."""

    def teach(self, observation):
        angle = observation[..., 2]
        return {"upright": jnp.exp(-10 * angle * angle)}

    def prepare(self, state, replay, unroll, total):
        if self.config.taught:
            advised = self.config.taught * unroll.advice["upright"]
            reward = unroll.reward.at[:-1].add(advised)
            unroll = unroll._replace(reward=reward)
        return super().prepare(state, replay, unroll, total)


experiment = Experiment(
    name="drawn",
    env="native:CartPole-v1",
    num_envs=8,
    groups=4,
    algorithm=Drawn(network=MLP(width=8), epochs=1, minibatches=2),
    updates=4,
)
with_memory = replace(
    experiment,
    algorithm=Drawn(network=MLP(width=8, memory=4), chunk=4, epochs=1, minibatches=1),
)
with_replay = replace(
    experiment,
    algorithm=Replayed(
        network=MLP(width=8),
        unroll_length=8,
        warm_up=64,
        batch_size=16,
        samples_per_insert=1.0,
        replay=512,
        priorities=0.6,
    ),
)


TAUGHT = PPO(
    network=MLP(width=8),
    unroll_length=8,
    epochs=1,
    minibatches=2,
    imitation_cost=Schedule.linear(1.0, 0.0),
    policy_cost=Schedule.linear(0.0, 1.0),
    teacher_share=Schedule.linear(0.7, 0.1),
)


def placed(**fragments):
    """An experiment with the policy of another run for a teacher, under a plan of these nodes."""
    plan = Plan(
        "placed", {name: Fragment(tuple(nodes.split())) for name, nodes in fragments.items()}
    )
    return replace(experiment, algorithm=TAUGHT, teacher="TEACHER", plan=plan)


taught_by_itself = replace(
    experiment,
    algorithm=replace(experiment.algorithm, taught=0.5),
    plan=Plan(
        "placed",
        {
            "actors": Fragment(("step", "collect")),
            "policies": Fragment(("act",)),
            "teacher": Fragment(("teach",)),
            "learner": Fragment(("learn",)),
        },
    ),
)
"""A teacher of the algorithm's own."""


# The ways to place a teacher apart from `act`, each named after the fragment that teaches.
teacher_inline = placed(actors="step act collect", teacher="teach", learner="learn")
teacher_decoupled = placed(actors="step collect", policies="act", teacher="teach", learner="learn")
teacher_central = placed(actors="step collect", teacher="teach", learner="act learn")
learner_inline = placed(actors="step act collect", learner="teach learn")
learner_decoupled = placed(actors="step collect", policies="act", learner="teach learn")
actors_decoupled = placed(actors="step collect teach", policies="act", learner="learn")
actors_writing = placed(actors="step collect teach", learner="act learn")
actors_serving = placed(actors="step teach", policies="act collect", learner="learn")
actors_central = placed(actors="step teach", learner="act collect learn")
