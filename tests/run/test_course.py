"""The course of a run, driven by the smallest trainer."""

from tiny_trainer import TinyTrainer

from srl.config.experiment import load_experiment
from srl.loop.stage import Stage
from srl.run.folder import create_run
from srl.run.train_loop import Run


class Stages:
    """Shows nothing, and keeps the stages that it is to show."""

    def __init__(self):
        self.seen = []

    def stage(self, stage):
        self.seen.append(stage)

    def start(self, trainer): ...

    def alive(self): ...

    def tick(self, trainer, now): ...

    def report(self, trainer, report): ...

    def say(self, text): ...


def test_a_run_is_saving_while_it_begins_a_checkpoint_in_the_background(tmp_path):
    experiment = load_experiment("Tiny-v0", ["--updates", "2"]).experiment
    folder = create_run(load_experiment("Tiny-v0", ["--updates", "2"]), tmp_path / "run")
    stages = Stages()
    with Run(experiment, folder.path, TinyTrainer(), stages, lambda: False) as run:
        run.start(resume=False)
        run.loop()
    saving = [Stage.SAVING, Stage.STEPPING]  # of the first update, in the background
    assert stages.seen == [Stage.STEPPING, *saving, Stage.SAVING]
