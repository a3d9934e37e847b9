"""The model card of an exported flow or EDM model: the ten lines that sample it with diffusers."""

from __future__ import annotations

from safelight.config import Config

FLOW = """\
scheduler.set_timesteps(sigmas=[1 - step / steps for step in range(steps)])
x = torch.randn(4, {channels}, {side}, {side})
with torch.no_grad():
    for t in scheduler.timesteps:
        x = scheduler.step(unet(x, t).sample, t, x).prev_sample
"""
EDM = """\
scheduler.set_timesteps(steps)
x = torch.randn(4, {channels}, {side}, {side}) * scheduler.init_noise_sigma
with torch.no_grad():
    for t in scheduler.timesteps:
        shown = scheduler.scale_model_input(x, t)
        x = scheduler.step(unet(shown, t).sample, t, x).prev_sample
"""
CARD = """\
# A diffusion model

Trained by Safelight: {process}, the U-Net predicts {target}. Images are {side} px with {channels} channels, in [-1, 1].

```python
import torch
from diffusers import UNet2DModel, {scheduler}

folder, steps = ".", 50
unet = UNet2DModel.from_pretrained(folder, subfolder="unet").eval()
scheduler = {scheduler}.from_pretrained(folder, subfolder="scheduler")
{loop}images = x.clamp(-1, 1)
```
"""
WORDS = {
    "flow": ("flow matching, x_t = (1 − t)·x0 + t·noise", "the velocity noise − x0 and is told 1000·t", FLOW),
    "edm": ("EDM, x_t = x0 + σ·noise", "EDM's F of c_in·x_t and is told log(σ) / 4", EDM),
}


def model_card(config: Config, scheduler: str) -> str:
    """`scheduler`: the name of its class."""
    process, target, loop = WORDS[config.diffusion.process]
    numbers = {"channels": config.data.channels, "side": config.data.image_size}
    return CARD.format(process=process, target=target, scheduler=scheduler, loop=loop.format(**numbers), **numbers)
