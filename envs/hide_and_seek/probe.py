"""A process that tests if MuJoCo can render off screen here; it ends well or reports why not."""

from __future__ import annotations

from collections.abc import Sequence


def main(words: Sequence[str]) -> None:
    """Renders a picture by the way that MUJOCO_GL names."""
    import mujoco

    model = mujoco.MjModel.from_xml_string("<mujoco/>")  # pyright: ignore[reportAttributeAccessIssue]
    data = mujoco.MjData(model)  # pyright: ignore[reportAttributeAccessIssue]
    mujoco.mj_forward(model, data)  # pyright: ignore[reportAttributeAccessIssue]
    renderer = mujoco.Renderer(model, 8, 8)
    renderer.update_scene(data)
    renderer.render()
    renderer.close()
