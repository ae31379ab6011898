"""Gymnasium's models and option names for the native MuJoCo environments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from srl.core.errors import UserError

MODELS = {
    "Ant-v5": "ant.xml",
    "HalfCheetah-v5": "half_cheetah.xml",
    "Hopper-v5": "hopper.xml",
    "Humanoid-v5": "humanoid.xml",
    "Walker2d-v5": "walker2d_v5.xml",
}
"""The environments, and the model of each in Gymnasium's package."""


def core_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Turns options as Gymnasium's constructors take them into those of the C++ environment.

    `xml_file` becomes a whole path, and `healthy_z_range=(low, high)` becomes `healthy_z_min` and
    `healthy_z_max`, like any other range. NumPy's numbers become Python's. Other options stay as
    they are.

    Args:
        name: The environment's id in the C++ registry.
        options: As given by the user.

    Raises:
        UserError: If a range is not two numbers, or `xml_file` no path.
    """
    options = {k: x.item() if isinstance(x, np.generic) else x for k, x in options.items()}
    if name not in MODELS:
        return options
    result: dict[str, Any] = {}
    for option, value in options.items():
        if option.endswith("_range"):
            result |= _bounds(option, value)
        else:
            result[option] = value
    result["xml_file"] = _model_path(options.get("xml_file", MODELS[name]))
    return result


def _bounds(option: str, value: Any) -> dict[str, float]:
    try:
        low, high = (float(bound) for bound in value)
    except (TypeError, ValueError):
        raise UserError(f"{option}={value!r}; expected two numbers, such as (0.2, 1.0)") from None
    stem = option.removesuffix("_range")
    return {f"{stem}_min": low, f"{stem}_max": high}


def _model_path(file: Any) -> str:
    """Gives the path of a model; a bare name is one of Gymnasium's, as for Gymnasium itself."""
    if not isinstance(file, str | Path):
        raise UserError(f"xml_file={file!r}; expected the path of a MuJoCo model")
    if str(file).startswith((".", "/", "~")):
        path = Path(file).expanduser()
    else:
        # The files alone: importing that package would bring the whole of its rendering.
        path = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / file
    if not path.is_file():
        raise UserError(f"xml_file={str(file)!r}: there is no file {path}")
    return str(path.absolute())
