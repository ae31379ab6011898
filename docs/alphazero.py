"""Gumbel AlphaZero (Danihelka et al., 2022) with reanalysis (Schrittwieser et al., 2021).

An algorithm outside srl with a search inside `act`, which docs/search.md explains. It plays
two-player games of pgx against itself in one slot: each step is the next player's move.
"""

from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, NamedTuple

import numpy as np
from gymnasium import spaces

from srl.algorithms import Algorithm, Instance
from srl.algorithms.gradient_descent import Descent, gradient_sums
from srl.algorithms.replay import empty, insert
from srl.algorithms.returns import valid_rows
from srl.core.lazy import flatten_util, jax, jnp, optax
from srl.core.settings import AtLeastOne, Range, ZeroToOne
from srl.core.types import Decision, Policy
from srl.pools.functional.environment import Step


@cache
def rules(game):
    """Gives pgx's game, the function that makes its state of an array of numbers, and mctx."""
    # The first call may be in a function that is traced; both make arrays as they are imported.
    with jax.ensure_compile_time_eval():
        import mctx
        import pgx

        env = pgx.make(game)
        _, state_of = flatten_util.ravel_pytree(env.init(jax.random.key(0)))
    return env, state_of, mctx


def flat(state):
    """Gives a state of a game as numbers, float32 [N]; those of the games above are small."""
    return jnp.concatenate([jnp.ravel(x).astype(jnp.float32) for x in jax.tree.leaves(state)])


class BoardGame:
    """A game of pgx. The player to move gets the reward of a move: 1, 0 or -1."""

    def __init__(self, game: str = "tic_tac_toe") -> None:
        """Takes pgx's name of the game."""
        self._env, *_ = rules(game)
        began = jax.eval_shape(self._observed, jax.eval_shape(self._env.init, jax.random.key(0)))
        self.observation_space = spaces.Dict(
            {name: spaces.Box(-np.inf, np.inf, x.shape) for name, x in began.items()}
        )
        self.action_space = spaces.Discrete(self._env.num_actions)

    def reset(self, key):
        """Begins a game."""
        state = self._env.init(key)
        return state, self._observed(state)

    def step(self, state, action, key):
        """Makes a move."""
        player = state.current_player
        state = self._env.step(state, action)
        return Step(state, self._observed(state), state.rewards[player], state.terminated)

    def _observed(self, state):
        return {"board": state.observation.astype(jnp.float32), "state": flat(state)}


@dataclass(frozen=True)
class AlphaZero(Algorithm):
    """Settings; `--algorithm.simulations` and so on override them."""

    game: str = "tic_tac_toe"
    """The game that the search plays, as of the environment."""
    unroll_length: AtLeastOne = 8
    """Moves of each game with one version of the network."""
    normalize_observations: bool = False
    """Standardise observations: boards are ones and zeros, so leave it off."""
    simulations: AtLeastOne = 16
    """Positions that a search visits."""
    width: AtLeastOne = 128
    """Units of the two hidden layers."""
    lambda_: ZeroToOne = 1.0
    """The weight of the game's outcome against values of later positions."""
    epochs: AtLeastOne = 4
    """Gradient steps with each batch."""
    learning_rate: Annotated[float, Range(0.0)] = 1e-3
    """Step size of Adam."""
    old_unrolls: Annotated[int, Range(0)] = 0
    """Unrolls that are kept to be searched again, one of them with each new one; 0 for none."""

    @property
    def instance(self):
        """The functions of AlphaZero."""
        return AlphaZeroInstance


class AlphaZeroState(NamedTuple):
    """All that learning changes."""

    params: Any
    optimizer: Any
    key: Any
    n: Any


@dataclass(frozen=True)
class AlphaZeroInstance(Instance):
    """AlphaZero for one trained policy."""

    config: AlphaZero

    @property
    def adam(self):
        """Adam; optax loads here, and not in workers that only step simulators."""
        return Descent(optax.scale_by_adam())

    def init(self, key):
        """Draws parameters."""
        sizes = [np.prod(self.specs.observation["board"].shape), *2 * [self.config.width]]
        sizes.append(self.specs.action.n + 1)
        draw = jax.nn.initializers.he_normal()
        params = [
            {"w": draw(k, (int(a), int(b))), "b": jnp.zeros(int(b))}
            for k, a, b in zip(jax.random.split(key, 3), sizes[:-1], sizes[1:], strict=True)
        ]
        zero, key = jnp.zeros((), jnp.int32), jax.random.key_data(key)
        return AlphaZeroState(params, self.adam.init(params), key, zero)

    def policy(self, state):
        """Gives what acting needs."""
        return Policy(state.params, {})

    def judged(self, params, board):
        """Gives logits of moves and values, of boards [..., *shape]."""
        x = board.reshape(*board.shape[: -len(self.specs.observation["board"].shape)], -1)
        for layer in params[:-1]:
            x = jax.nn.relu(x @ layer["w"] + layer["b"])
        x = x @ params[-1]["w"] + params[-1]["b"]
        return x[..., :-1], jnp.tanh(x[..., -1])

    def search(self, params, observation, key, noise=1.0):
        """Gives the move, and the search's weights over moves, of one slot's position."""
        env, state_of, mctx = rules(self.config.game)

        def moved(params, key, move, states):
            after = jax.vmap(env.step)(states, move)
            reward = jax.vmap(lambda x, player: x[player])(after.rewards, states.current_player)
            logits, value = self.judged(params, after.observation.astype(jnp.float32))
            going = ~after.terminated
            # The value is the other player's, so a step turns its sign.
            found = mctx.RecurrentFnOutput(
                reward=reward, discount=-1.0 * going, prior_logits=logits, value=value * going
            )
            return found, after

        states = jax.tree.map(lambda x: x[None], state_of(observation["state"]))
        logits, value = self.judged(params, observation["board"][None])
        found = mctx.gumbel_muzero_policy(
            params,
            key,
            mctx.RootFnOutput(prior_logits=logits, value=value, embedding=states),
            moved,
            self.config.simulations,
            invalid_actions=~states.legal_action_mask,
            gumbel_scale=noise,
        )
        return {"move": found.action[0], "weights": found.action_weights[0]}

    def act(self, policy, observation, memory, keys, slot, noise=1.0):
        """Searches from each slot's position; the action holds the search's weights, too."""
        search = jax.vmap(self.search, (None, 0, 0, None))
        return Decision(
            search(policy.params, observation, keys, noise), jnp.zeros(len(keys)), memory
        )

    def act_greedy(self, policy, observation, memory):
        """Searches without noise."""
        keys = jax.random.split(jax.random.key(0), len(observation["state"]))
        return self.act(policy, observation, memory, keys, None, noise=0.0)

    def initial_memory(self, batch):
        """Gives no memory."""
        return ()

    @property
    def env_action(self):
        """The function that gives the simulator the move alone."""
        return lambda action: action["move"]

    @property
    def gradient_steps(self):
        """Gradient steps of one call of `learn`."""
        return self.config.epochs

    def empty_replay(self, unroll):
        """Gives a ring of no unrolls."""
        return empty(unroll, self.config.old_unrolls) if self.config.old_unrolls else ()

    def targets(self, params, rows, weights):
        """Gives boards, moves' weights, the mover's outcomes and validity, [T, B, ...] each."""
        _, value = self.judged(params, rows.observation["board"])

        def earlier(later, row):
            reward, over, next_value = row
            rest = self.config.lambda_ * later + (1 - self.config.lambda_) * next_value
            outcome = reward - jnp.where(over, 0.0, rest)
            return outcome, outcome

        following = rows.reward[1:], rows.terminated[1:], value[1:]
        _, outcome = jax.lax.scan(earlier, value[-1], following, reverse=True)
        board = rows.observation["board"][:-1]
        return board, weights, outcome, valid_rows(rows.terminated, rows.truncated)

    def prepare(self, state, replay, unroll, total):
        """Gives the new unroll, and an old one that is searched again by today's network."""
        batch = self.targets(state.params, unroll, unroll.action["weights"])
        if not self.config.old_unrolls:
            return state, replay, batch
        replay = insert(replay, unroll, state.n)
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.n)
        known = jnp.clip(state.n + 1, 1, self.config.old_unrolls)
        old = jax.tree.map(lambda x: x[jax.random.randint(key, (), 0, known)], replay)
        positions = jax.tree.map(lambda x: x[:-1], old.observation)
        # Keys follow from the number in the run of each slot, wherever it is learned.
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, unroll.slot)
        keys = jax.vmap(lambda x: jax.random.split(x, self.config.unroll_length), out_axes=1)(keys)
        search = jax.vmap(jax.vmap(self.search, (None, 0, 0)), (None, 0, 0))
        again = self.targets(state.params, old, search(state.params, positions, keys)["weights"])
        return state, replay, jax.tree.map(lambda *x: jnp.concatenate(x), batch, again)

    def loss(self, params, batch):
        """Gives the losses of the moves and of the value."""
        board, weights, outcome, _ = batch
        logits, value = self.judged(params, board)
        policy_loss = optax.softmax_cross_entropy(logits, weights)
        value_loss = jnp.square(value - outcome)
        return policy_loss + value_loss, {"policy_loss": policy_loss, "value_loss": value_loss}

    def gradient_step(self, state, batch, step, total):
        """Takes a step of Adam."""
        sums, _ = gradient_sums(lambda x: self.loss(x, batch), state.params, batch[-1])
        gradient, metrics = total(sums).mean()
        rate = self.config.learning_rate
        params, optimizer = self.adam.step(state.params, state.optimizer, gradient, rate)
        return state._replace(params=params, optimizer=optimizer), metrics
