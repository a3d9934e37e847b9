"""A run from Python, cell by cell: a Config, training, samples in a grid.

python examples/notebook_style.py --steps 300 --run runs/notebook
"""

# %% What to train
import argparse
from dataclasses import replace
from pathlib import Path

import safelight
from safelight.config.tree import Data, Model, Sample, Train
from safelight.pictures.grid import grid, save_png, to_uint8

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--count", type=int, default=64)
parser.add_argument("--run", type=Path, default=Path("runs/notebook"))
given = parser.parse_args()

config = safelight.Config(
    data=Data(source="digits", image_size=8),
    model=Model(widths=(32, 64), attention=(), norm_groups=16),
    train=Train(steps=given.steps, batch_size=64),
    sample=Sample(count=given.count, steps=25),
)
config = replace(config, optimizer=replace(config.optimizer, lr=2e-3))

# %% Train
run = safelight.train(config=config, run=given.run)

# %% Look
images = run.sample(given.count, seed=1, steps=25)  # [count, 1, 8, 8] in [-1, 1]
page = grid(to_uint8(images), title=f"{run.path.name}, step {run.step:,}")
save_png(page, run.path / "samples.png")
print(run.path / "samples.png")
