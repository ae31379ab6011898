"""Returns and advantages of unrolls, time-major.

Row t of `reward`, `terminated` and `truncated` came with observation t; the action taken at row t
led to row t + 1. A row that ends an episode is a reset row: the action taken at it was ignored,
so it has no advantage, and nothing flows across it.
"""

from __future__ import annotations

from srl.core.lazy import jax, jnp
from srl.core.types import Array, Tree


def valid_rows(terminated: Array, truncated: Array) -> Array:
    """Gives which of the first T rows hold an action that counts: [T + 1, ...] to [T, ...]."""
    return ~(terminated | truncated)[:-1]


def zero_unless(valid: Array, tree: Tree) -> Tree:
    """Gives arrays [T, B, ...] with zeros at the rows that are not valid, bool [T, B]."""

    def of(x: Array) -> Array:
        mask = valid.reshape(*valid.shape, *[1] * (x.ndim - valid.ndim))
        return jnp.where(mask, x, jnp.zeros_like(x))

    return jax.tree.map(of, tree)


def where_rows(condition: Array, one: Tree, other: Tree) -> Tree:
    """Gives the rows of `one` where the condition, bool [B], is set, and elsewhere of `other`."""
    return jax.tree.map(
        lambda a, b: jnp.where(condition.reshape(-1, *[1] * (a.ndim - 1)), a, b), one, other
    )


def generalized_advantages(
    reward: Array,
    terminated: Array,
    truncated: Array,
    value: Array,
    discount: float,
    gae_lambda: float,
) -> Array:
    """Generalized advantage estimation (Schulman et al., 2016, https://arxiv.org/abs/1506.02438).

    With delta_t = r_{t+1} + discount V(s_{t+1}) - V(s_t) (eq. 10), the advantage is
    A_t = delta_t + discount lambda A_{t+1} (eq. 16). A terminated observation is worth 0; a
    truncated one, the true last of its episode, is worth its value.

    Args:
        reward: float32 [T + 1, ...], of the action that led to the row.
        terminated: bool [T + 1, ...].
        truncated: bool [T + 1, ...].
        value: float32 [T + 1, ...].
        discount: Gamma.
        gae_lambda: 0 is the one-step temporal difference, 1 is Monte Carlo with bootstrap.

    Returns:
        float32 [T, ...], 0 at reset rows.
    """
    next_value = jnp.where(terminated, 0.0, value)[1:]
    delta = reward[1:] + discount * next_value - value[:-1]

    def backward(next_advantage: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, valid = row
        advantage = jnp.where(valid, delta + discount * gae_lambda * next_advantage, 0.0)
        return advantage, advantage

    rows = (delta, valid_rows(terminated, truncated))
    _, advantages = jax.lax.scan(backward, jnp.zeros_like(delta[0]), rows, reverse=True)
    return advantages


def vtrace(
    reward: Array,
    terminated: Array,
    truncated: Array,
    value: Array,
    log_ratio: Array,
    discount: float,
    lambda_: float,
    clip_rho: float = 1.0,
    clip_c: float = 1.0,
) -> tuple[Array, Array]:
    """V-trace (Espeholt et al., 2018, https://arxiv.org/abs/1802.01561), with a lambda.

    The c_i carry the factor lambda (remark 2). On-policy, both results are the generalized
    advantages.

    Args:
        reward: float32 [T + 1, ...], of the action that led to the row.
        terminated: bool [T + 1, ...].
        truncated: bool [T + 1, ...].
        value: float32 [T + 1, ...].
        log_ratio: float32 [T, ...], of the learning to the acting policy, for the action taken.
        discount: Gamma.
        lambda_: 0 is the one-step temporal difference, 1 is V-trace as it was first given.
        clip_rho: Rho-bar: larger ratios weigh a difference like this.
        clip_c: C-bar: larger ratios weigh the differences after them like this.

    Returns:
        The advantages, float32 [T, ...], not yet weighted by the ratio, which a loss brings in; and
        the corrections, float32 [T, ...], v_t - V(s_t) (eq. 1). Both are 0 at reset rows.
    """
    valid = valid_rows(terminated, truncated)
    ratio = jnp.exp(log_ratio)
    rho, c = jnp.minimum(ratio, clip_rho), lambda_ * jnp.minimum(ratio, clip_c)
    next_value = jnp.where(terminated, 0.0, value)[1:]
    delta = reward[1:] + discount * next_value - value[:-1]

    def backward(following: Array, row: tuple[Array, ...]) -> tuple[Array, tuple[Array, Array]]:
        delta, rho, c, valid = row
        advantage = jnp.where(valid, delta + discount * lambda_ * following, 0.0)
        correction = jnp.where(valid, rho * delta + discount * c * following, 0.0)
        return correction, (advantage, correction)

    rows = delta, rho, c, valid
    _, results = jax.lax.scan(backward, jnp.zeros_like(delta[0]), rows, reverse=True)
    return results


def n_step_returns(
    reward: Array, terminated: Array, truncated: Array, value: Array, discount: float, n: int
) -> Array:
    """Sums of up to n discounted rewards and the value of the row after them.

    They stop where the episode ends, or the rows: a terminated row is worth 0, a truncated one and
    the last one their value.

    Args:
        reward: float32 [T + 1, ...], of the action that led to the row.
        terminated: bool [T + 1, ...].
        truncated: bool [T + 1, ...].
        value: float32 [T + 1, ...].
        discount: Gamma.
        n: Rewards.

    Returns:
        float32 [T, ...].
    """
    value = jnp.where(terminated, 0.0, value)
    ended, returns = terminated | truncated, value
    for _ in range(n):
        following = jnp.where(ended, value, returns)[1:]
        returns = jnp.concatenate([reward[1:] + discount * following, value[-1:]])
    return returns[:-1]
