"""Trainers that end with their test."""

import pytest

from srl.loop.training import local_training


@pytest.fixture
def start(tmp_path):
    """Starts a trainer in a run's folder."""
    trainers = []

    def make(experiment, kind=local_training, folder=tmp_path):
        trainer = kind(experiment)
        trainer.folder = folder
        trainers.append(trainer)
        trainer.start()
        return trainer

    yield make
    for trainer in trainers:
        trainer.close()
