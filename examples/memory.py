"""What a training step of one's own module would need: counted before anything is allocated.

    python examples/memory.py --batch-size 64

Seconds on a CPU.
"""

import argparse

from torch import nn

import safelight


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    given = parser.parse_args()

    layers = [nn.Conv2d(3, 64, 3, padding=1), nn.SiLU(), nn.Conv2d(64, 64, 3, padding=1), nn.SiLU()]
    model = nn.Sequential(*layers, nn.Conv2d(64, 3, 3, padding=1))
    for precision in ("fp32", "bf16"):
        found = safelight.estimate(model, (given.batch_size, 3, 32, 32), optimizer="adamw", ema=1, precision=precision)
        print(precision)
        print(found)
    print("fits" if found.fits else "does not fit")


if __name__ == "__main__":
    main()
