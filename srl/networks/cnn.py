"""A convolutional network for images, and for vectors beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from srl.core.errors import UserError
from srl.core.settings import AtLeastOne
from srl.core.spaces import Space, is_image, space_tree
from srl.core.tree import leaves_of
from srl.networks.network import Network
from srl.networks.policy_and_value import unsupported

if TYPE_CHECKING:
    from flax import linen


@dataclass(frozen=True)
class CNN(Network):
    """The convolutions of Mnih et al. (2015), then one dense layer.

    An image is a Box of three axes, with its channels (or stacked frames) last or first: the
    shorter of the two ends. Everything else that is observed joins at the dense layer.
    """

    filters: tuple[AtLeastOne, ...] = (32, 64, 64)
    """Filters of each convolution."""
    kernels: tuple[AtLeastOne, ...] = (8, 4, 3)
    """Side of each convolution's window."""
    strides: tuple[AtLeastOne, ...] = (4, 2, 1)
    """Step of each convolution's window."""
    width: AtLeastOne = 512
    """Units of the dense layer."""

    def features(self, space: Space) -> linen.Module:
        """Gives the convolutions and the dense layer."""
        from srl.networks.cnn_features import CNNFeatures

        if not self.fits(space):
            raise unsupported(space, "an image (a Box of three axes), or a Dict or Tuple with one")

        lengths = len(self.filters), len(self.kernels), len(self.strides)
        if len({*lengths}) > 1:
            raise UserError(
                "network: filters, kernels and strides have {}, {} and {} numbers; give each one "
                "for each convolution".format(*lengths)
            )
        if any(stride > kernel for kernel, stride in zip(self.kernels, self.strides, strict=True)):
            raise UserError(
                f"network.strides {self.strides}: a step longer than its window, of "
                f"{self.kernels}, leaves pixels out; give shorter ones"
            )
        layers = tuple(zip(self.filters, self.kernels, self.strides, strict=True))
        return CNNFeatures(space, layers, self.width, self.layer_norm)

    @staticmethod
    def fits(space: Space) -> bool:
        """Tells if an observation holds an image."""
        return any(map(is_image, leaves_of(space_tree(space))))
