"""The names under which an agent observes itself and what is around it."""

from __future__ import annotations

SELF = "observation_self"
LIDAR = "lidar"
ENTITIES = {
    "agent_qpos_qvel": "mask_aa_obs",
    "box_obs": "mask_ab_obs",
    "ramp_obs": "mask_ar_obs",
    "food_obs": "mask_af_obs",
    "construction_site_obs": "mask_acs_obs",
}
"""Names of the entities an agent may see, and of the masks of those that it does see."""
