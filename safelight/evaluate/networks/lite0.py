"""EfficientNet-Lite0: a small ImageNet network whose weights an ordinary package carries."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn
from torch.nn.functional import pad, relu6

DIMENSION = 1280
STRIDE = 32  # sides must be a multiple, so that every strided layer meets an even number of pixels
# As the weights were trained: with ImageNet's usual numbers the first layer would get 5.8 times the variance.
MEAN, DEVIATION = (127 / 255,) * 3, (128 / 255,) * 3

# (blocks, kernel, stride of the first, expansion, outputs): table 1 of arXiv 1905.11946, without squeeze-excitation.
STAGES = [
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
]

normalisation = partial(nn.BatchNorm2d, eps=1e-3)


class Conv2dSame(nn.Conv2d):
    """Padded as TensorFlow's SAME on an even number of pixels: with stride 2, more on the right and below."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1) -> None:
        missing = kernel - stride if kernel > 1 else 0
        even = missing // 2 if missing % 2 == 0 else 0
        super().__init__(inputs, outputs, kernel, stride=stride, padding=even, groups=groups, bias=False)
        self.border = (missing // 2, missing - missing // 2) * 2 if missing % 2 else None

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(x if self.border is None else pad(x, self.border))


class Block(nn.Module):
    """Inverted bottleneck: widen, convolve each channel by itself, narrow."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = inputs * expansion
        self.widens = expansion > 1
        if self.widens:
            self.expand_conv = Conv2dSame(inputs, width, 1)
            self.bn0 = normalisation(width)
        self.depthwise_conv = Conv2dSame(width, width, kernel, stride=stride, groups=width)
        self.bn1 = normalisation(width)
        self.project_conv = Conv2dSame(width, outputs, 1)
        self.bn2 = normalisation(outputs)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        wide = relu6(self.bn0(self.expand_conv(x)), inplace=True) if self.widens else x
        wide = relu6(self.bn1(self.depthwise_conv(wide)), inplace=True)
        narrow = self.bn2(self.project_conv(wide))
        return x + narrow if self.residual else narrow


class Lite0(nn.Module):
    """Grey levels 0 to 255 of shape [n, 3, side, side] to [n, 1280]; any side that is a multiple of 32."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_stem = Conv2dSame(3, 32, 3, stride=2)
        self.bn0 = normalisation(32)
        self.blocks = nn.Sequential(*_blocks(32))
        self.conv_head = Conv2dSame(STAGES[-1][-1], DIMENSION, 1)
        self.bn1 = normalisation(DIMENSION)

    def forward(self, levels: Tensor) -> Tensor:
        shape = list(levels.shape)
        assert shape[2] % STRIDE == shape[3] % STRIDE == 0, f"{shape}: sides must be multiples of {STRIDE}"
        mean, deviation = (levels.new_tensor(each).view(1, 3, 1, 1) for each in (MEAN, DEVIATION))
        x = (levels / 255 - mean) / deviation
        x = self.blocks(relu6(self.bn0(self.conv_stem(x)), inplace=True))
        return relu6(self.bn1(self.conv_head(x)), inplace=True).mean((2, 3))


def side_for(image_size: int | None) -> int:
    """The side that images of a size are resized to: a little enlarged, since five layers halve them."""
    sides = {16: 32, 32: 64, 64: 128}
    return next((side for size, side in sides.items() if image_size is not None and image_size <= size), 224)


def own_name(name: str) -> str:
    """The name that this module gives to a tensor of the carried file: without its leading underscores."""
    return ".".join(part.lstrip("_") for part in name.split("."))


def _blocks(inputs: int) -> list[Block]:
    found = []
    for count, kernel, stride, expansion, outputs in STAGES:
        for step in (stride, *[1] * (count - 1)):
            found.append(Block(inputs, outputs, kernel, step, expansion))
            inputs = outputs
    return found
