"""Five numbers on how much samples vary, and FID, against real images: here samples that lack seven of ten digits.

    python examples/diversity.py

Seconds on a CPU.
"""

import torch
from sklearn.datasets import load_digits

import safelight


def main() -> None:
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1
    real, samples = images[::2], images[1::2][digits.target[1::2] < 3]

    print(safelight.FID(real).add(samples).compute())
    report = safelight.Diversity(real).add(samples).compute()
    print(report)
    print(report.kind)


if __name__ == "__main__":
    main()
