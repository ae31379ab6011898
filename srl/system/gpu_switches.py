"""Choices for runs on GPUs that `srl bench gpu` measures on and off: the variable SRL_GPU.

SRL_GPU=convolutions=patches,act=cpu srl run ...

The defaults follow from reading what XLA does; where a machine's figures say otherwise, the
variable changes them. All processes that a run starts inherit it.
"""

from __future__ import annotations

import os

from srl.core.errors import UserError

VARIABLE = "SRL_GPU"
CHOICES = {
    "convolutions": ("xla", "patches"),
    "act": ("gpu", "cpu"),
    "copies": ("together", "apart"),
    "prefetch": ("on", "off"),
    "pools": ("whole", "shared"),
}
"""The values of each choice, its default first.

convolutions: XLA's own, or a matrix product over patches as on CPUs. Only next to a GPU.
act: Where a worker acts for its own environments: on the GPU, or on the CPU, where a call with few
slots has no kernels to launch.
copies: Arrays for the CPU are copied all at once, or one after the other.
prefetch: With `max_staleness`, the next batch goes to the GPU while it learns from this one.
pools: Next to a GPU each actor thread's pool has all cores, or its share of them.
"""


def gpu_choice(name: str) -> str:
    """The value that a choice has in this process.

    Raises:
        UserError: If the variable holds anything that is no choice.
    """
    chosen = {name: values[0] for name, values in CHOICES.items()}
    for part in filter(None, os.environ.get(VARIABLE, "").split(",")):
        key, _, value = part.strip().partition("=")
        if value not in CHOICES.get(key, ()):
            expected = "; ".join(f"{key}={'|'.join(each)}" for key, each in CHOICES.items())
            raise UserError(f"{VARIABLE} holds {part.strip()!r}; expected some of {expected}")
        chosen[key] = value
    return chosen[name]
