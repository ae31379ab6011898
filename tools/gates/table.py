"""The gates: a run's command, the return that it has to reach, and what has been published."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from srl.core.errors import UserError, nearest


@dataclass(frozen=True)
class Gate:
    """The return required of an algorithm on an environment, as the mean over seeds."""

    name: str
    """`<algorithm>-<environment>`, with what is special behind a colon."""
    command: str
    """The arguments of `srl run`, without the seed."""
    threshold: float
    """The least mean over seeds of the return at a run's end."""
    published: str
    """The returns that others have published, for comparison."""
    lasting: float = 0.95
    """The share of the threshold that the mean over seeds of the lowest report of a run's last
    third must reach; a negative threshold is divided by it. Near 1 where learning should be over
    by then, lower where returns still rise."""
    evaluated: bool = False
    """True if the published figure is an evaluation: then so is the return at the end."""
    seeds: int = 5
    """The number of seeds in the table: ten where a run takes seconds."""

    @property
    def lasting_threshold(self) -> float:
        """The least mean over seeds of the lowest report of the last third."""
        share = self.lasting if self.threshold > 0 else 1 / self.lasting
        return round(self.threshold * share, 1)

    @property
    def table_seeds(self) -> range:
        """The seeds of the table; settings are chosen on others, 0 to 4."""
        return range(100, 100 + self.seeds)

    @property
    def arguments(self) -> list[str]:
        """The command's arguments one by one; the first is the target."""
        return shlex.split(self.command)


def gates_named(names: Sequence[str]) -> list[Gate]:
    """The gates with these names, in the table's order; all of them without names.

    Raises:
        UserError: If there is no gate of a name.
    """
    known = [gate.name for gate in GATES]
    for name in names:
        if name not in known:
            raise UserError(f"there is no gate {name!r}; {nearest(name, known)}")
    return [gate for gate in GATES if not names or gate.name in names]


_CARTPOLE = "native:CartPole-v1 --env-steps 300000"
_APART = "--plan decoupled --max-staleness"
_NO_VELOCITIES = "native:CartPole-v1 --env.hide-velocities true --env-steps 300000"
_T_MAZE = "jax:srl.envs.t_maze:TMaze --num-envs 32 --env.length"
_TWO_STEP = (
    "jax:srl.envs.two_step:TwoStep --algorithm pqn --num-envs 8 --env-steps 60000 "
    "--algorithm.epsilon-end 1 --algorithm.q-lambda 0"
)
_REPLAYED = "--num-envs 8 --algorithm.warm-up {} --algorithm.samples-per-insert 64"
_TENTH = "--algorithm.reward-scale 0.1 --algorithm.value-range"
_RISING = 0.75  # of the threshold, where returns still rise in the last third
_FEW_MINIBATCHES = "--algorithm.minibatches 8 --algorithm.gae-lambda 0.9"

# CleanRL: docs.cleanrl.dev, returns in training, at 500,000 (classic control) and 1,000,000 env
# steps. Tianshou: its MuJoCo benchmark, the best evaluation within 1,000,000 env steps of v3
# environments. Zoo: evaluations of the RL Baselines3 Zoo's tuned agents. FastSAC and FlashSAC:
# evaluations, too.
GATES = (
    Gate("ppo-cartpole", _CARTPOLE, 475, "CleanRL 490 ± 6", seeds=10),
    Gate("ppo-acrobot", "native:Acrobot-v1 --env-steps 300000", -90, "CleanRL -86", seeds=10),
    Gate(
        "ppo-pendulum",
        "native:Pendulum-v1 --env-steps 300000",
        -250,
        "Zoo -172",
        evaluated=True,
        seeds=10,
    ),
    Gate(
        "ppo-half_cheetah",
        "native:HalfCheetah-v5 --env-steps 1000000",
        4000,
        "CleanRL 1,443, Tianshou 5,784",
        lasting=_RISING,
        evaluated=True,
        seeds=10,
    ),
    Gate(
        "ppo-hopper",
        f"native:Hopper-v5 --env-steps 1000000 {_FEW_MINIBATCHES} --algorithm.discount 0.995",
        2400,
        "CleanRL 2,383, Tianshou 2,609",
        lasting=_RISING,
        evaluated=True,
    ),
    Gate(
        "ppo-walker2d",
        "native:Walker2d-v5 --env-steps 1000000 --algorithm.discount 0.995",
        3000,
        "CleanRL 2,288, Tianshou 3,589",
        lasting=_RISING,
        evaluated=True,
    ),
    Gate(
        "ppo-ant",
        f"native:Ant-v5 --env-steps 1000000 {_FEW_MINIBATCHES}",
        1500,
        "Tianshou 3,258",
        lasting=_RISING,
        evaluated=True,
    ),
    *(
        Gate(
            f"{algorithm}-cartpole:staleness_{bound}",
            f"{_CARTPOLE} --algorithm {algorithm} {_APART} {bound}",
            475,
            "none",
            lasting=1,
            seeds=10,
        )
        for algorithm in ("impala", "appo")
        for bound in (0, 4, "none")
    ),
    # REPPO's critic needs a range of returns.
    Gate(
        "reppo-pendulum",
        f"native:Pendulum-v1 --algorithm reppo --env-steps 300000 {_TENTH} -170 20",
        -250,
        "none; PPO of the Zoo -172",
        evaluated=True,
    ),
    Gate(
        "reppo-half_cheetah",
        f"native:HalfCheetah-v5 --algorithm reppo --env-steps 1000000 {_TENTH} -30 150",
        4000,
        "none; PPO of Tianshou 5,784",
        lasting=_RISING,
        evaluated=True,
    ),
    Gate("pqn-cartpole", f"{_CARTPOLE} --algorithm pqn", 475, "CleanRL 495 ± 7", seeds=10),
    Gate(
        "pqn-acrobot",
        "native:Acrobot-v1 --algorithm pqn --env-steps 500000",
        -95,
        "CleanRL -96 ± 6",
        seeds=10,
    ),
    *(
        # Actions stay random, as in the paper, and targets look a step ahead: VDN learns what all
        # pairs of actions pay. Where the best pair is taken most often, it learns 8, too.
        Gate(
            f"{kind}-two_step",
            f"{_TWO_STEP} --algorithm.mixer.kind {kind}",
            optimum,
            f"Rashid et al. {optimum}",
            lasting=0.5,  # of random actions, which pay 4.75 on average
            evaluated=True,
        )
        for kind, optimum in (("vdn", 7), ("qmix", 8))
    ),
    Gate(
        "dqn-cartpole",
        "native:CartPole-v1 --algorithm dqn --env-steps 500000",
        470,
        "CleanRL 489 ± 16",
    ),
    Gate(
        "dqn-acrobot",
        "native:Acrobot-v1 --algorithm dqn --env-steps 500000",
        -95,
        "CleanRL -92 ± 7",
    ),
    Gate(
        "dqn-mountain_car",
        "native:MountainCar-v0 --algorithm dqn --env-steps 300000 --num-envs 8 "
        "--algorithm.priorities 0.6 --algorithm.n-step 8 --algorithm.unroll-length 32 "
        "--algorithm.samples-per-insert 64 --algorithm.learning-rate 1e-3",
        -120,
        "Zoo -101 at 120,000",
        lasting=_RISING,
        evaluated=True,
    ),
    Gate(
        "r2d2-cartpole:hidden_velocities",
        f"{_NO_VELOCITIES} --algorithm r2d2",
        400,
        "none; without memory below 100",
        # Training's returns count slots with up to 40 % random actions.
        lasting=0.75 * _RISING,
        evaluated=True,
    ),
    Gate(
        "pqn-cartpole:hidden_velocities",
        # The layer-normalised outputs of the LSTM can stand for large values, and the memory that
        # acting had is out of date after few gradient steps.
        f"{_NO_VELOCITIES} --algorithm pqn --num-envs 8 --algorithm.unroll-length 32 "
        "--algorithm.minibatches 4 --algorithm.epochs 2 --algorithm.reward-scale 0.1 "
        "--algorithm.network.memory 128 --algorithm.network.cell lstm",
        300,
        "none; without memory below 100",
        lasting=_RISING,
        seeds=10,
    ),
    Gate(
        "ppo-cartpole:hidden_velocities",
        f"{_NO_VELOCITIES} --algorithm.network.memory 32",
        400,
        "none; without memory below 100",
    ),
    Gate(
        "impala-cartpole:hidden_velocities",
        f"{_NO_VELOCITIES} --algorithm impala --algorithm.network.memory 64 "
        "--algorithm.network.cell lstm",
        400,
        "none; without memory below 100",
    ),
    *(
        Gate(
            f"{algorithm}-t_maze:{length}",
            f"{_T_MAZE} {length} --env-steps {env_steps} --algorithm {algorithm}{more}",
            0.95,
            "none; without memory 0",
            lasting=_RISING,
            evaluated=algorithm in ("pqn", "r2d2"),
        )
        # Actions of PQN and R2D2 are random at times: the best that training could report is 0.95.
        # Unrolls of 16 and 20 steps, as are usual for PQN and IMPALA, would not hold the longer
        # maze. LSTMs learn it sooner than GRUs: their outputs are layer-normalised.
        for algorithm, more in (
            ("ppo", " --algorithm.network.memory 32 --algorithm.network.cell lstm"),
            (
                "impala",
                " --algorithm.network.memory 64 --algorithm.network.cell lstm "
                "--algorithm.unroll-length 32",
            ),
            ("pqn", " --algorithm.network.memory 32 --algorithm.unroll-length 32"),
            ("r2d2", ""),
        )
        for length, env_steps in ((16, 150_000), (30, 200_000))
    ),
    *(
        gate
        # With a quarter of the usual gradient steps, target networks that follow by 0.0025 a step
        # (the actor's delay halves the rate) are too slow for TD3 to learn Pendulum in time.
        # On HalfCheetah TD3 draws its first 10,000 actions at random, as in its paper: after 1,000,
        # two seeds of five stayed at returns of some 1,400.
        for name, more, warm_up, pendulum, cheetah in (
            ("sac", "", 1_000, "-157", "9,635"),
            ("td3", " --algorithm.target-rate 0.01", 10_000, "-152", "9,583"),
        )
        for gate in (
            Gate(
                f"{name}-pendulum",
                f"native:Pendulum-v1 --algorithm {name} --env-steps 20000 "
                f"{_REPLAYED.format(1_000)}{more}",
                -200,
                f"Zoo {pendulum}",
                # A report's 100 episodes are all that there were, the beginner's among them: with
                # SAC the lowest of the last third is some -1,050, and without learning -1,290.
                lasting=0.17,
                evaluated=True,
            ),
            Gate(
                f"{name}-pendulum:hidden_velocities",
                f"native:Pendulum-v1 --env.hide-velocities true --algorithm {name} "
                f"--env-steps 20000 {_REPLAYED.format(1_000)}{more} --algorithm.network.memory 64",
                -250,
                "none",
                lasting=0.17,
                evaluated=True,
            ),
            Gate(
                f"{name}-half_cheetah",
                f"native:HalfCheetah-v5 --algorithm {name} --env-steps 300000 "
                + _REPLAYED.format(warm_up),
                4000,
                f"CleanRL {cheetah} at 1,000,000",
                lasting=_RISING,
            ),
        )
    ),
    *(
        Gate(
            f"sac-{env.lower()}:many_environments",
            f"native:{env}-v5 --algorithm sac --num-envs 256 --env-steps 3000000 "
            "--algorithm.samples-per-insert 8 --algorithm.batch-size 1024 --algorithm.n-step 3",
            threshold,
            "FastSAC's and FlashSAC's curves",
            lasting=_RISING,
            evaluated=True,
        )
        for env, threshold in (("Ant", 3900), ("Humanoid", 4500))
    ),
    *(
        Gate(
            f"sac-{name}:nightly",
            f"native:{env}-v5 --algorithm sac --num-envs 8 --env-steps 1000000 "
            "--algorithm.samples-per-insert 128",
            threshold,
            f"CleanRL {published}",
            lasting=_RISING,
        )
        for name, env, threshold, published in (
            ("half_cheetah", "HalfCheetah", 9000, "9,635"),
            ("hopper", "Hopper", 2200, "2,310"),
            ("walker2d", "Walker2d", 3400, "3,591"),
        )
    ),
)
"""Every gate. Slow ones are run by hand: `gates NAME`."""
