"""Networks: configurations that build the policy's and the value's functions.

Importing this loads neither jax nor flax; `build` does.
"""

from srl.networks.auto import AutoNetwork
from srl.networks.cnn import CNN
from srl.networks.entity_attention import EntityAttention
from srl.networks.mlp import MLP
from srl.networks.network import Network
from srl.networks.policy_and_value import PolicyAndValue
from srl.networks.simba import SimBa

__all__ = ["CNN", "MLP", "AutoNetwork", "EntityAttention", "Network", "PolicyAndValue", "SimBa"]
