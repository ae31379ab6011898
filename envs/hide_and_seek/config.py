"""The settings of the game."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from srl.pools.pool import Contest, EnvConfig, Painter, Recorder


@dataclass(frozen=True)
class HideAndSeek(EnvConfig):
    """Hiders and seekers in a walled arena with boxes and ramps, on MuJoCo.

    Hiders are rewarded while no seeker sees any of them, seekers while one does; the seekers
    stand still for a first part of each episode, in which nobody is rewarded. Agents move, grab
    what they see nearby, and lock it in place, where only their own team can unlock it.
    """

    pool_id: ClassVar[str] = "native:HideAndSeek-v1"
    contest: ClassVar[Contest] = Contest(
        statistic="hiders_unseen",
        meaning="share of main-phase steps in which the hiders are unseen",
        raised_by="hider",
        raising="evade",
        lowered_by="seeker",
        lowering="catch",
    )
    statistics: ClassVar[Mapping[str, str]] = {
        "hiders_unseen": contest.meaning,
        "main_steps": "steps after the preparation",
        "max_box_move_prep": "farthest a box was moved in the preparation (m)",
        "max_box_move": "farthest a box was moved (m)",
        "num_box_lock_prep": "boxes locked at the preparation's end",
        "num_box_lock": "boxes locked at the end",
        "max_ramp_move_prep": "farthest a ramp was moved in the preparation (m)",
        "max_ramp_move": "farthest a ramp was moved (m)",
        "num_ramp_lock_prep": "ramps locked at the preparation's end",
        "num_ramp_lock": "ramps locked at the end",
        "out_of_bounds": "share of agents' main-phase steps outside of the arena",
        "diverged": "share of episodes whose physics diverged",
    }

    scenario: Literal["quadrant", "full"] = "quadrant"
    """One room in a corner with two boxes and a ramp, or random rooms with up to nine boxes."""
    hiders: int = 2
    """1 to 3."""
    seekers: int = 2
    """1 to 3."""
    horizon: int | None = None
    """Steps of an episode; by default 80 in the quadrant, 240 in the full game."""
    prep_fraction: float = 0.4
    """Share of an episode in which seekers stand still."""
    boxes_min: int | None = None
    """Fewest boxes of the full game, by default 3."""
    boxes_max: int | None = None
    """Most boxes of the full game, by default 9."""
    sleep: bool = True
    """Leave objects at rest out of the physics until something touches them."""

    @classmethod
    def painter(cls, drawing: bool = False, camera: str | None = None) -> Painter:
        """MuJoCo's rendering where OpenGL works, else a drawing from above.

        Cameras: top, corner (of the rendering alone), follow, follow:AGENT.
        """
        from srl.envs.hide_and_seek.render import painter

        return painter(drawing, camera)

    @classmethod
    def recorder(cls) -> Recorder:
        """Records the game for a browser: from above, and what each agent sees."""
        from srl.envs.hide_and_seek.recorder import GameRecorder

        return GameRecorder()
