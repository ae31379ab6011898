"""Trainers that end with their test."""

import pytest

from srl.loop.training import local_training


@pytest.fixture
def start():
    trainers = []

    def make(experiment, kind=local_training):
        trainer = kind(experiment)
        trainers.append(trainer)
        trainer.start()
        return trainer

    yield make
    for trainer in trainers:
        trainer.close()
