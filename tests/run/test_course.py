"""The course of a run, driven by the smallest trainer."""

from gymnasium import spaces
from tiny_trainer import TinyTrainer

from srl.config.experiment import load_experiment
from srl.core.types import Specs
from srl.loop.stage import Stage
from srl.run.folder import create_run
from srl.run.train_loop import Run


class Stages:
    """Shows nothing, and keeps the stages and the lines that it is to show."""

    def __init__(self):
        self.seen, self.said = [], []

    def stage(self, stage):
        self.seen.append(stage)

    def start(self, trainer): ...

    def alive(self): ...

    def tick(self, trainer, now): ...

    def report(self, report): ...

    def say(self, text):
        self.said.append(text)


def test_a_run_is_saving_while_it_begins_a_checkpoint_in_the_background(tmp_path):
    experiment = load_experiment("Tiny-v0", ["--updates", "2"]).experiment
    folder = create_run(load_experiment("Tiny-v0", ["--updates", "2"]), tmp_path / "run")
    stages = Stages()
    with Run(experiment, folder.path, TinyTrainer(), stages, lambda: False) as run:
        run.start(resume=False)
        run.loop()
    saving = [Stage.SAVING, Stage.STEPPING]  # of the first update, in the background
    assert stages.seen == [Stage.STEPPING, *saving, Stage.SAVING]


class ClippedUnits(TinyTrainer):
    """Observes a set without its mask, and learns distributions that returns lie beyond."""

    specs = Specs(spaces.Dict(units=spaces.Box(-1, 1, (9, 4))), spaces.Discrete(2), ("hider0",))

    def report(self):
        return {**super().report(), "loss/clipped_targets": 0.3}


def test_a_set_without_a_mask_and_clipped_returns_are_remarked_on_once(tmp_path):
    options = "--updates 3 --report-every 1 --algorithm dqn --algorithm.atoms 51".split()
    resolved = load_experiment("Tiny-v0", options)
    folder, stages = create_run(resolved, tmp_path / "run"), Stages()
    with Run(resolved.experiment, folder.path, ClippedUnits(), stages, lambda: False) as run:
        run.start(resume=False)
        run.loop()
    network, clipped = (said for said in stages.said if "units" in said or "targets" in said)
    assert "takes units [9, 4] as one vector" in network
    assert "observe their mask, mask_units [9]" in network
    assert "more than 5% of targets lie beyond the atoms' returns, -100 to 100," in clipped
