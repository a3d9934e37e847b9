"""Load an exported pipeline in diffusers and sample from it; Safelight is not needed for this.

safelight export runs/first -o pipeline
python examples/diffusers_load.py pipeline --count 16 --out images
"""

import argparse
from pathlib import Path

import torch
from diffusers import DDIMPipeline


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("pipeline", type=Path)
    parser.add_argument("--count", type=int, default=16)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("images"))
    given = parser.parse_args()

    pipeline = DDIMPipeline.from_pretrained(given.pipeline)
    generator = torch.Generator().manual_seed(given.seed)
    images = pipeline(batch_size=given.count, num_inference_steps=given.steps, generator=generator).images
    given.out.mkdir(parents=True, exist_ok=True)
    for index, image in enumerate(images):
        image.save(given.out / f"{index:06d}.png")
    print(given.out)


if __name__ == "__main__":
    main()
