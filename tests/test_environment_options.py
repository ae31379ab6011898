"""Options of environments on the command line, read as the environments' signatures have them."""

import pytest

from srl.config.experiment import load_experiment
from srl.core.errors import UserError
from srl.pools import NamedEnv


class Typed:
    """What takes options as an environment does."""

    def __init__(
        self, size: int = 3, speed=1, hard=False, name: str = "a", mode: "str | None" = None
    ):
        raise AssertionError("nothing is made of it")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("CartPole-v1 --env.sutton-barto-reward maybe", "is 'maybe'; expected true, false"),
        (
            "test_environment_options:Typed --env.size x",
            "--env.size is 'x'; expected a whole number",
        ),
        (
            "test_environment_options:Typed --env.size 2.5",
            "--env.size is '2.5'; expected a whole number",
        ),
        ("test_environment_options:Typed --env.hard 3", "--env.hard is '3'; expected true, false"),
        ("test_environment_options:Typed --env.speed fast", "or a number, such as 0.5"),
    ],
)
def test_an_option_that_an_environments_signature_does_not_allow_is_refused(words, told):
    target, *options = words.split()
    with pytest.raises(UserError) as raised:
        load_experiment(target, options)
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_option_is_read_as_an_environments_signature_has_it():
    words = "--env.size 1e3 --env.speed 2.5 --env.name 3 --env.mode none --env.hard TRUE"
    env = load_experiment("test_environment_options:Typed", words.split()).experiment.env
    found = {"size": 1000, "speed": 2.5, "name": "3", "mode": None, "hard": True}
    assert env == NamedEnv("test_environment_options:Typed", found)
