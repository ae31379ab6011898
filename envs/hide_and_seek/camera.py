"""The camera of a film of the game."""

from __future__ import annotations

import numpy as np

from srl.core.errors import UserError
from srl.envs.hide_and_seek.scene import Scene

_SHARE = 0.35  # of the way to the agent that a camera goes in a step, so that it moves calmly


class Camera:
    """A fixed camera, or one that goes with an agent."""

    def __init__(self, words: str = "top") -> None:
        """Reads `top`, `corner`, `follow` or `follow:AGENT`; by default the first agent.

        Raises:
            UserError: If it is none of these.
        """
        self.name, _, self._agent = words.partition(":")
        self.followed: int | None = None
        """The number of the agent that it goes with."""
        self.place: np.ndarray | None = None
        """The point that it looks at then, x and y."""
        self.note = ""
        """A note for the caption."""
        known = self.name in ("top", "corner", "follow")
        if not known or (":" in words and (self.name != "follow" or not self._agent)):
            raise UserError(f"--camera {words}; expected top, corner, follow or follow:AGENT")

    def aim(self, scene: Scene, agents: tuple[str, ...]) -> None:
        """Goes after its agent.

        Args:
            scene: The next step.
            agents: Names.

        Raises:
            UserError: If there is no such agent.
        """
        if self.name != "follow":
            return
        agent = self._agent or agents[0]
        if agent not in agents:
            raise UserError(
                f"--camera follow:{agent}: there is no such agent, only {', '.join(agents)}"
            )
        self.followed, self.note = agents.index(agent), f"following {agent}"
        goal = scene.agents[self.followed, :2]
        if self.place is None or scene.step == 0:
            self.place = goal
        self.place = self.place + _SHARE * (goal - self.place)
