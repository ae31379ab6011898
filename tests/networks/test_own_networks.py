"""Networks that a user wrote: mistakes are refused in a line."""

import jax
import pytest
from flax import linen
from gymnasium import spaces

from srl.core.errors import UserError
from srl.networks import Network


class WithConstructor(Network):
    def __init__(self, width=64):
        self.width = width


def test_a_network_with_settings_that_no_run_could_record_is_refused():
    with pytest.raises(UserError, match=r"WithConstructor .* put @dataclass"):
        WithConstructor()


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        (lambda self, space: "Dense", "Faulty.features gives 'Dense'; expected a flax module"),
        (
            lambda self, space: self.widht,
            r"Faulty.features raised AttributeError: .*test_own_networks",
        ),
        (lambda self, space: linen.Dense(4), r"raised \w+: .*observations of shape {'a'"),
        (lambda self, space: lambda x: x["a"].sum(-1), r"gives \(1, 1\) for .* \[1, 1, units\]"),
        (lambda self, space: lambda x: x["a"].reshape(1, -1), r"gives \(1, 3\) for"),
    ],
)
def test_features_that_cannot_serve_are_refused_in_a_line(features, reason):
    faulty = type("Faulty", (Network,), {"features": features})()
    with pytest.raises(UserError, match=reason):
        faulty.build(spaces.Dict(a=spaces.Box(-1, 1, (3,))), 2).init(jax.random.key(0))
