"""The native MuJoCo environments, against Gymnasium's own."""

from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import pytest

from srl import RunError, UserError, make_pool
from srl.pools.native.mujoco import MODELS

ANT = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "ant.xml"


def follow(name, steps, **options):
    """Steps both from the same states, the native one among others that share its thread."""
    reference = gymnasium.make(name, **options).unwrapped
    model, data = reference.model, reference.data
    rng = np.random.default_rng(0)
    endings = 0
    sizes = {"num_envs": 3, "threads": 1, "max_episode_steps": 0}
    with make_pool(f"native:{name}", **sizes, **options) as pool:
        assert pool.specs.observation.shape == reference.observation_space.shape
        assert pool.specs.action == reference.action_space
        low, high = 1.5 * pool.specs.action.low, 1.5 * pool.specs.action.high  # also out of bounds

        def start():
            qpos = reference.init_qpos + rng.uniform(-0.05, 0.05, model.nq)
            qvel = rng.uniform(-0.05, 0.05, model.nv)
            mujoco.mj_resetData(model, data)
            reference.set_state(qpos, qvel)
            pool.inject(1, "qpos", qpos)
            pool.inject(1, "qvel", qvel)

        def actions():
            return rng.uniform(low, high, (3, *low.shape)).astype(np.float32)

        pool.reset(seed=0)
        start()
        for _ in range(steps):
            action = actions()
            timestep = pool.step(action)
            observation, reward, terminated, _, _ = reference.step(action[1])
            np.testing.assert_array_equal(timestep.observation[1], observation.astype(np.float32))
            # Gymnasium adds the squares of actions up in float32.
            np.testing.assert_allclose(timestep.reward[1], reward, rtol=1e-6, atol=1e-5)
            assert timestep.terminated[1] == terminated
            assert not timestep.truncated[1]
            if terminated:
                endings += 1
                assert pool.step(actions()).reward[1] == 0  # starts the next episode
                start()
    return endings


@pytest.mark.parametrize("name", MODELS)
def test_a_thousand_random_steps_are_gymnasiums(name):
    endings = follow(name, 1000)
    assert endings >= 5 or name == "HalfCheetah-v5"  # which never falls


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Ant-v5", {"include_cfrc_ext_in_observation": False, "main_body": "aux_1"}),
        ("Ant-v5", {"contact_force_range": (-0.1, 0.2), "contact_cost_weight": 0.3}),
        ("Ant-v5", {"frame_skip": 2, "healthy_z_range": (0.5, 0.8), "healthy_reward": 3}),
        ("HalfCheetah-v5", {"forward_reward_weight": 2.0, "ctrl_cost_weight": 0.7}),
        ("Hopper-v5", {"terminate_when_unhealthy": False, "xml_file": str(ANT)}),
        ("Hopper-v5", {"healthy_state_range": (-1.0, 1.0), "healthy_angle_range": (-9.0, 9.0)}),
        ("Walker2d-v5", {"exclude_current_positions_from_observation": False}),
        ("Humanoid-v5", {"exclude_current_positions_from_observation": False}),
        ("Humanoid-v5", {"contact_cost_weight": 1e-3, "contact_cost_range": (0.1, 0.5)}),
        (
            "Humanoid-v5",
            {
                "include_cinert_in_observation": False,
                "include_qfrc_actuator_in_observation": False,
            },
        ),
        (
            "Humanoid-v5",
            {"include_cvel_in_observation": False, "include_cfrc_ext_in_observation": False},
        ),
    ],
)
def test_options_mean_what_they_mean_in_gymnasium(name, options):
    follow(name, 60, **options)


@pytest.mark.parametrize("name", MODELS)
def test_the_time_limit_is_gymnasiums(name):
    with make_pool(f"native:{name}") as pool:
        assert pool.specs.max_episode_steps == gymnasium.spec(name).max_episode_steps
        assert pool.specs.observation.dtype == np.float32


@pytest.mark.parametrize("name", MODELS)
def test_starts_are_distributed_as_gymnasiums(name):
    reference = gymnasium.make(name).unwrapped
    theirs, ours = [], []
    with make_pool(f"native:{name}", num_envs=1000) as pool:
        pool.reset(seed=1)
        for i in range(1000):
            reference.reset(seed=i)
            theirs.append(reference.state_vector())
            state = pool.inspect(i)
            ours.append(np.concatenate([state["qpos"], state["qvel"]]))
    start = np.concatenate([reference.init_qpos, reference.init_qvel])
    theirs, ours = np.array(theirs) - start, np.array(ours) - start
    scale = reference._reset_noise_scale
    for part in (slice(0, reference.model.nq), slice(reference.model.nq, None)):
        quantiles = np.linspace(0, 1, 9)[1:-1]
        expected = np.quantile(theirs[:, part], quantiles)
        np.testing.assert_allclose(
            np.quantile(ours[:, part], quantiles), expected, rtol=0, atol=0.1 * scale
        )
        spread = theirs[:, part].std(axis=0)
        np.testing.assert_allclose(ours[:, part].std(axis=0), spread, rtol=0.2)
        bounded = np.abs(theirs[:, part]).max() <= scale
        assert (np.abs(ours[:, part]).max() <= scale) == bounded


@pytest.mark.parametrize("name", MODELS)
def test_the_first_observation_is_gymnasiums(name):
    reference = gymnasium.make(name).unwrapped
    with make_pool(f"native:{name}") as pool:
        pool.reset(seed=0)
        pool.step(np.ones((1, *pool.specs.action.shape), np.float32))
        observation = pool.reset().observation[0]  # with nothing left of the step before
        state = pool.inspect(0)
    mujoco.mj_resetData(reference.model, reference.data)
    reference.set_state(state["qpos"], state["qvel"])
    np.testing.assert_array_equal(observation, reference._get_obs().astype(np.float32))


def play(name, steps, **sizes):
    """All that a pool gives under the same random actions."""
    rng = np.random.default_rng(0)
    with make_pool(f"native:{name}", **sizes) as pool:
        timesteps = [pool.reset(seed=5)]
        space = pool.specs.action
        for _ in range(steps):
            action = rng.uniform(space.low, space.high, (pool.num_envs, *space.shape))
            timesteps.append(pool.step(action.astype(np.float32)))
    return timesteps


def same(ours, theirs):
    for field, our, their in zip(ours._fields, ours, theirs, strict=True):
        np.testing.assert_array_equal(our, their, field)


def test_one_thread_and_two_give_the_same_trajectories():
    for one, two in zip(
        play("Humanoid-v5", 40, num_envs=16, threads=1),
        play("Humanoid-v5", 40, num_envs=16, threads=2),
        strict=True,
    ):
        same(one, two)


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_pool_goes_on_bit_by_bit(name):
    rng = np.random.default_rng(0)
    with make_pool(f"native:{name}", 3) as pool, make_pool(f"native:{name}", 3) as other:
        shape = (3, *pool.specs.action.shape)
        pool.reset(seed=3)
        for _ in range(30):
            pool.step(rng.uniform(-0.4, 0.4, shape).astype(np.float32))
        other.restore(pool.save())
        for _ in range(30):
            action = rng.uniform(-0.4, 0.4, shape).astype(np.float32)
            same(pool.step(action), other.step(action))


def test_a_state_whose_observation_is_longer_is_refused():
    with make_pool("native:Hopper-v5") as pool:
        length = pool.reset(seed=0).observation.shape[1]
        state, observed = pool.save(), pool.reset(seed=0).observation.tobytes()
        assert state.count(observed) == 1
        place = state.index(observed) - 8  # where its length is
        assert state[place : place + 8] == length.to_bytes(8, "little")
        longer = (length + 9).to_bytes(8, "little") + observed + bytes(36)
        changed = state[:place] + longer + state[place + 8 + len(observed) :]
        with pytest.raises((UserError, RunError), match="comes from another model"):
            pool.restore(changed)


@pytest.mark.parametrize("name", MODELS)
def test_the_parts_of_the_reward_add_up_to_the_return(name):
    with make_pool(f"native:{name}") as pool:
        is_part = [statistic.startswith("reward_") for statistic in pool.specs.statistics]
    for timestep in play(name, 100, num_envs=4):
        parts = timestep.statistics[:, is_part].sum(axis=1)
        np.testing.assert_allclose(parts, timestep.episode_return, rtol=1e-4, atol=1e-4)


def test_a_diverged_episode_is_truncated_at_its_last_good_state(tmp_path):
    strong = tmp_path / "strong.xml"
    strong.write_text(ANT.read_text().replace('gear="150"', 'gear="1e9"'))
    with make_pool("native:Ant-v5", xml_file=strong) as pool:
        before = pool.reset(seed=0)
        timestep = pool.step(np.ones((1, 8), np.float32))
        assert timestep.truncated[0]
        assert not timestep.terminated[0]
        assert timestep.reward[0] == 0
        np.testing.assert_array_equal(timestep.observation, before.observation)
        assert timestep.statistics[0, pool.specs.statistics.index("diverged")] == 1
        after = pool.step(np.zeros((1, 8), np.float32))
        assert not after.truncated[0]
        assert after.statistics[0, pool.specs.statistics.index("diverged")] == 0


def test_an_error_of_mujocos_is_told_and_leaves_the_others_as_they_were(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = tmp_path / "small.xml"  # enough memory to fly, too little to stand
    small.write_text(ANT.read_text().replace("<option ", '<size memory="12K"/><option '))
    action = np.ones((2, 8), np.float32)

    def fly(with_faults):
        sizes = {"num_envs": 2, "threads": 1, "xml_file": small}
        with make_pool("native:Ant-v5", terminate_when_unhealthy=False, **sizes) as pool:
            pool.reset(seed=0)
            faults = []
            high = pool.inspect(1)["qpos"] + np.eye(15)[2] * 50
            pool.inject(1, "qpos", high)
            pool.inject(0, "qpos", high if not with_faults else high - np.eye(15)[2] * 50)
            for _ in range(30):
                try:
                    pool.step(action)
                except RunError as error:
                    faults.append(str(error))
            return pool.inspect(1)["qpos"], faults

    calm, none = fly(False)
    shaken, some = fly(True)
    assert not none
    assert "Ant-v5: environment 0: MuJoCo: mj_stackAlloc: out of memory" in some[0]
    np.testing.assert_array_equal(calm, shaken)
    assert list(tmp_path.iterdir()) == [small]  # no log file


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"xml_file": "/nowhere/ant.xml"}, "no file /nowhere/ant.xml"),
        ({"xml_file": "no_such_ant.xml"}, "no file .*assets/no_such_ant.xml"),
        ({"xml_file": 3}, "expected the path"),
        ({"xml_file": "hopper.xml", "main_body": 9}, "'main_body' = 9, .* bodies 0 to 4"),
        ({"main_body": "wing"}, "no body 'wing'"),
        ({"healthy_z_range": 0.2}, "healthy_z_range=0.2; expected two numbers"),
        ({"healthy_reward": "much"}, "'healthy_reward' is a text"),
        ({"max_episode_steps": -1}, "max_episode_steps = -1, expected at least 0"),
        ({"frame_skip": 0}, "'frame_skip' = 0, expected at least 1"),
        ({"reset_noise_scale": -1}, "'reset_noise_scale' = -1, expected at least 0"),
        ({"contact_cost_range": (0, 1)}, "unknown option 'contact_cost_max'"),
    ],
)
def test_wrong_options_are_told(options, told):
    with pytest.raises(UserError, match=told):
        make_pool("native:Ant-v5", **options)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("<mujoco><worldbody>", "cannot be loaded: XML parse error"),
        ("<mujoco><wing/></mujoco>", "cannot be loaded: .* unrecognized element"),
        ("<mujoco/>", "has 0 positions, expected at least 3"),
        ("<mujoco><option><flag sleep='enable'/></option></mujoco>", "enables sleep"),
    ],
)
def test_a_model_that_does_not_fit_is_told(tmp_path, model, told):
    file = tmp_path / "model.xml"
    file.write_text(model)
    with pytest.raises(UserError, match=told):
        make_pool("native:Ant-v5", xml_file=file)


def test_a_model_that_changed_on_disk_is_read_again(tmp_path):
    file = tmp_path / "ant.xml"
    file.write_text(ANT.read_text())
    with make_pool("native:Ant-v5", xml_file=file) as pool:
        assert pool.specs.action.high[0] == 1
    file.write_text(ANT.read_text().replace('ctrlrange="-1.0 1.0"', 'ctrlrange="-2.0 2.0"'))
    with make_pool("native:Ant-v5", xml_file=file) as pool:
        assert pool.specs.action.high[0] == 2


def test_a_file_that_a_model_includes_and_that_changed_is_read_again(tmp_path):
    file, options = tmp_path / "ant.xml", tmp_path / "options.xml"
    before = '<option integrator="RK4" timestep="0.01"/>'
    assert before in ANT.read_text()
    file.write_text(ANT.read_text().replace(before, '<include file="options.xml"/>'))
    first = []
    for timestep in (0.01, 0.005):
        options.write_text(f"<mujoco>{before.replace('0.01', str(timestep))}</mujoco>")
        with make_pool("native:Ant-v5", xml_file=file) as pool:
            pool.reset(seed=0)
            first.append(pool.step(np.ones((1, 8), np.float32)).observation)
    assert (first[0] != first[1]).any()


def test_the_model_is_there_to_be_drawn(tmp_path):
    with make_pool("native:Ant-v5") as pool:
        saved = tmp_path / "ant.mjb"
        saved.write_bytes(pool.model(0))
    assert mujoco.MjModel.from_binary_path(str(saved)).nq == 15
