"""A run without self-play loads none of it but its settings."""

import subprocess
import sys
from pathlib import Path

TRAIN = """
import sys
from dataclasses import replace
from small_runs import CARTPOLE, train
from srl.loop.training import local_training

trainer = local_training(replace(CARTPOLE, num_envs=2))
trainer.start()
train(trainer, 1)
trainer.restore(trainer.state())
trainer.close()
own = ("config.fixed", "config.self_play", "loop.self_play.", "evaluation.rater")
own = tuple(f"srl.{name}" for name in (*own, "record.opponent_pool", "record.ratings"))
print(*sorted(name for name in sys.modules if name.startswith(own)))
"""


def test_a_learner_without_self_play_loads_its_settings_alone():
    folder = str(Path(__file__).parents[1])
    code = f"import sys; sys.path.insert(0, {folder!r}){TRAIN}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["srl.config.fixed", "srl.config.self_play"], done.stderr
