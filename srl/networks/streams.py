"""Outputs of a policy in groups, each with a hidden layer, as dueling networks have them."""

from __future__ import annotations

from dataclasses import replace

from srl.networks.policy_and_value import PolicyAndValue


def with_streams(built: PolicyAndValue, sizes: tuple[int, ...]) -> PolicyAndValue:
    """Gives a network with other outputs of its policy: groups with a hidden layer each.

    Args:
        built: From `Network.build` with 0 outputs; its features are what groups share.
        sizes: Outputs of each group; all are joined, [..., the sum]. A hidden layer of relu is as
            wide as the features.
    """
    from srl.networks.heads import Streams

    return replace(built, policy_module=Streams(built.policy_module, sizes))
