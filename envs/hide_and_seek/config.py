"""The settings of the game, and of the tasks that its policies can be transferred to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from srl.envs.hide_and_seek.tasks import Task
from srl.pools.config import Animation, Contest, EnvConfig, Painter, Recorder

_THINGS = {"box": "boxes", "ramp": "ramps"}
_WHEN = {"_prep": " in the preparation"}


@dataclass(frozen=True)
class HideAndSeek(EnvConfig):
    """Hiders and seekers in a walled arena with boxes and ramps, on MuJoCo.

    Hiders are rewarded while no seeker sees any of them, seekers while one does; the seekers
    stand still for a first part of each episode, in which nobody is rewarded. Agents move, grab
    what they see nearby, and lock it in place, where only their own team can unlock it.

    The other tasks put one agent into the same world. docs/hide_and_seek.md describes all. What
    is None follows from the task and the scenario; what means nothing there is refused.
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
        "seeker_sight": "share of main-phase steps in which a seeker sees a hider, over all pairs",
        "seekers_on_top": "share of main-phase seeker steps on a ramp, a box or a wall",
        "seekers_surfing": "share of main-phase seeker steps on a thing that the seeker holds",
        "out_of_bounds": "share of agents' main-phase steps outside of the arena",
        "main_steps": "steps after the preparation",
        **{
            f"max_{thing}_move{when}": f"farthest {thing} from its start{meaning} (m)"
            for thing in ("box", "ramp")
            for when, meaning in {"": "", **_WHEN, "_main": " in the main phase"}.items()
        },
        **{
            f"num_{thing}_lock{when}": f"{things} locked{meaning or ' at the end'}"
            for thing, things in _THINGS.items()
            for when, meaning in {"": "", **_WHEN}.items()
        },
        **{
            f"{thing}_lock_share_{team}{when}": f"share of {things} locked by {team}{meaning}"
            for thing, things in _THINGS.items()
            for team in ("hiders", "seekers")
            for when, meaning in {"": "", **_WHEN}.items()
        },
        "food_eaten": "bites of all hiders",
        "food_eaten_prep": "bites of all hiders in the first main-phase step",
        "diverged": "share of episodes whose physics diverged",
    }

    task: Task = "hide_and_seek"
    """The game, or one of the tasks for a single agent."""
    scenario: Literal["quadrant", "full"] | None = None
    """One room in a corner with two boxes and a ramp, by default, or random rooms with up to nine
    boxes."""
    hiders: int | None = None
    """1 to 3, by default 2."""
    seekers: int | None = None
    """1 to 3, by default 2."""
    horizon: int | None = None
    """Steps of an episode; by default 80 in the quadrant, 240 in the full game."""
    prep_fraction: float | None = None
    """Share of an episode in which seekers stand still, by default 0.4."""
    floor_size: float | None = None
    """Metres along a side of the full game's floor, 4 to 12 by steps of 0.2, by default 6."""
    boxes_min: int | None = None
    """Fewest boxes, by default 2 in the quadrant, 3 in the full game."""
    boxes_max: int | None = None
    """Most boxes, up to 9; by default 2 in the quadrant, 9 in the full game."""
    elongated_min: int | None = None
    """Fewest boxes that are long, by default 0 in the quadrant, 3 in the full game."""
    elongated_max: int | None = None
    """Most boxes that are long, by default 0 in the quadrant, all in the full game."""
    ramps: int | None = None
    """0 to 2, by default 1 in the quadrant, 2 in the full game."""
    lock_ramps: bool | None = None
    """Lets ramps be locked; by default in the full game alone."""
    rooms_min: int | None = None
    """Fewest rooms of the full game, by default 1."""
    rooms_max: int | None = None
    """Most rooms of the full game, up to 6, by default 4."""
    outer_walls: float | None = None
    """Probability of walls around the floor of the full game, by default 0.5."""
    door_dropout: float | None = None
    """Probability that the quadrant has one door instead of two, by default 0.5."""
    hiders_anywhere: bool | None = None
    """Lets the quadrant's hiders begin anywhere, as by default, otherwise inside it."""
    hiders_together: float | None = None
    """Metres around the first hider of the full game in which the others begin, by default 0.5; 0
    for anywhere."""
    seekers_together: float | None = None
    """Likewise of the seekers."""
    reward_type: Literal["selfish", "joint_mean", "joint_zero_sum"] | None = None
    """The reward of agents: their own, their team's mean, or, by default, one team's against the
    other's."""
    penalize_objects_out: bool | None = None
    """Lets all agents pay for a box or ramp off the floor; by default in the quadrant alone."""
    lock_type: Literal["any_lock", "all_lock", "any_lock_specific", "all_lock_team_specific"] = (
        "all_lock_team_specific"
    )
    """The agents that lock and unlock: any nearby, all nearby, the locker, or the locker's team."""
    lock_out_of_vision: bool = False
    """Lock near things that are not seen."""
    grab_out_of_vision: bool = False
    """Grab near things that are not seen."""
    grab_selective: bool = False
    """An action for each object, in place of one for the nearest."""
    grab_exclusive: bool = False
    """Let only one agent hold an object."""
    lidar_scale: float = 0.0
    """Give lidar distances d as scale * tanh(d / scale); 0 gives d."""
    food: int | None = None
    """Food for hiders, 0 to 16 pieces, by default none. Options of the food are refused without."""
    food_health: int | None = None
    """Bites of a piece, by default 40."""
    food_radius: float | None = None
    """Metres within which it is eaten, by default 0.5."""
    food_respawn_steps: int | None = None
    """Steps until an eaten piece returns, by default 5; 0 for never."""
    food_together: float | None = None
    """Metres around the first piece of a cluster, by default 0.25; 0 for anywhere."""
    food_clusters: int | None = None
    """Clusters that the pieces are divided into, by default 1."""
    food_centered: bool | None = None
    """Lets clusters of the full game begin in the middle of the floor; by default so."""
    food_when_caught: bool | None = None
    """Lets hiders eat while a seeker sees one of them; by default not."""
    food_reward: Literal["selfish", "joint_mean"] | None = None
    """The receiver of a bite's reward: the agent that takes it or, by default, its team."""
    food_reward_scale: float | None = None
    """Reward of a bite, by default 1."""
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
    def animation(cls) -> Animation:
        """Draws the game from above."""
        from srl.envs.hide_and_seek.animation import GameAnimation

        return GameAnimation()

    @classmethod
    def recorder(cls) -> Recorder:
        """Records the game for a browser: from above, and what each agent sees."""
        from srl.envs.hide_and_seek.recorder import GameRecorder

        return GameRecorder()
