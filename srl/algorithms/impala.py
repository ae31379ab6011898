"""IMPALA: importance-weighted actor-learners (Espeholt et al., 2018, arXiv:1802.01561).

Each step is learned from once. V-trace corrects the targets of the value and the advantages of the
policy for actions that an older policy took, and nothing keeps the policy near the one that acted:
at a ratio of 1, the gradient of `ratio * advantage` is that of `log_prob * advantage`, the policy
gradient of section 4.2. So IMPALA is APPO with other settings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from srl.algorithms.appo import APPO
from srl.core.schedule import Adjustable
from srl.core.settings import AtLeastOne, Range, ZeroToOne


@dataclass(frozen=True)
class IMPALA(APPO):
    """The settings of IMPALA.

    Unroll length and importance weights are the paper's (appendix D). The paper takes one gradient
    step of RMSProp for a batch of 640 steps and sums losses over it; here batches are divided, and
    losses are means, for Adam.
    """

    unroll_length: Annotated[int, Range(1, 2**31 - 1)] = 20
    """Steps of each unroll, with one version of the policy or, with stale data, with several."""
    epochs: AtLeastOne = 1
    """Passes of learning through each batch."""
    learning_rate: Annotated[Adjustable, Range(0.0)] = 5e-4
    """The step size of Adam, which replaces the paper's RMSProp."""
    gae_lambda: ZeroToOne = 1.0
    """Lambda: 1 is the original V-trace, 0 the one-step temporal difference."""
    clip: Annotated[Adjustable, Range(0.0)] = math.inf
    """The distance from 1 at which the probability ratio is clipped; infinity does not clip it."""
    max_weight: Annotated[float, Range(1.0)] = 1.0
    """Rho-bar of the policy's gradient: the largest weight of a sample."""
