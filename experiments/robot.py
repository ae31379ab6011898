"""A quadruped, Unitree's Go1, follows commands of a joystick: MuJoCo Playground's task, by EnvPool.

pip install 'envpool>=1.2.5,<1.3'
srl run experiments/robot.py                                       # a critic that sees more
srl run experiments/robot.py:teacher                               # a policy that sees all
srl run experiments/robot.py:student --teacher runs/robot_teacher  # learns from that one, too
srl run experiments/robot.py --env envpool:Go1JoystickRoughTerrain-v1
srl eval runs/robot --video

The policy observes what the robot's sensors give, with noise (`state`); the value function also
sees the true velocities, contacts and pushes (`privileged_state`). The robot is the same seen in a
mirror, so PPO learns from each step and its mirror image. docs/robot.md has what was reached.
"""

from dataclasses import replace

import numpy as np

from srl import Experiment
from srl.algorithms import PPO, Mirror
from srl.networks import MLP

# Hip, thigh and calf of the front right, front left, rear right and rear left leg: the mirror
# swaps right and left, and hips turn the other way.
_JOINTS = [3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8], [-1, 1, 1] * 4
_FEET = [1, 0, 3, 2], [1] * 4
_FEET_VECTORS = [3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8], [1, -1, 1] * 4
_VECTOR = [0, 1, 2], [1, -1, 1]  # a velocity or force; y points to the left
_TURN = [0, 1, 2], [-1, 1, -1]  # an angular velocity
_COMMAND = [0, 1, 2], [1, -1, -1]  # forwards, to the left, turning
_SAME = [0], [1]
_STATE = (_VECTOR, _TURN, _VECTOR, _JOINTS, _JOINTS, _JOINTS, _COMMAND)
_PRIVILEGED = (
    *(*_STATE, _TURN, _VECTOR, _VECTOR, _VECTOR, _TURN, _JOINTS, _JOINTS, _JOINTS),
    *(_FEET, _FEET_VECTORS, _FEET, _VECTOR, _SAME),
)


def _mirror(parts):
    """Gives the function that mirrors an array of these parts, [..., numbers]."""
    starts = np.cumsum([0, *(len(order) for order, _ in parts)])
    order = np.concatenate(
        [start + np.array(order) for start, (order, _) in zip(starts, parts, strict=False)]
    )
    sign = np.concatenate([np.array(sign, np.float32) for _, sign in parts])
    return lambda x: x[..., order] * sign


_mirrored = {"state": _mirror(_STATE), "privileged_state": _mirror(_PRIVILEGED)}
_mirrored_joints = _mirror((_JOINTS,))


def mirrored_observation(observation):
    """Mirrors the parts of an observation that it has."""
    return {name: _mirrored[name](part) for name, part in observation.items()}


def mirrored_action(action):
    """Mirrors the targets of the joints, [..., 12]."""
    return _mirrored_joints(action)


# The networks, discount and cost of entropy are those of Playground's locomotion_params.py, which
# trains for 200 million steps with 8,192 environments on a GPU.
experiment = Experiment(
    name="robot",
    env="envpool:Go1JoystickFlatTerrain-v1",
    num_envs=128,
    algorithm=PPO(
        network=MLP(widths=(512, 256, 128), value_widths=(512, 256, 128)),
        privileged=("privileged_state",),
        mirror=Mirror(mirrored_observation, mirrored_action),
        unroll_length=20,
        epochs=4,
        discount=0.97,
        entropy_cost=0.01,
    ),
    env_steps=20_000_000,
)
teacher = replace(
    experiment, name="robot_teacher", algorithm=replace(experiment.algorithm, privileged=())
)
# A teacher's advice is about the rows as they were, so without their mirror images.
student = replace(
    experiment, name="robot_student", algorithm=replace(experiment.algorithm, mirror=None)
)
