"""Hide-and-seek (Baker et al., 2020, https://arxiv.org/abs/1909.07528): configuration and drawing.

The simulation itself is C++, in `csrc/envs/hide_and_seek`.
"""

from srl.envs.hide_and_seek.config import HideAndSeek

__all__ = ["HideAndSeek"]
