"""Trainers that end with their test."""

import pytest

from srl.loop.local import Trainer


@pytest.fixture
def start():
    trainers = []

    def make(experiment, kind=Trainer):
        trainer = kind(experiment)
        trainers.append(trainer)
        trainer.start()
        return trainer

    yield make
    for trainer in trainers:
        trainer.close()
