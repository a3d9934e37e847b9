"""The Inception network of 2015-12-05 that defines FID, and the proof that its first layers are the true ones."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, max_pool2d, relu

SIDE = 299
DIMENSION = 2048
PUBLISHED_FID = 12.6388  # FID(feature=64) of the example in torchmetrics' documentation since 1.0, seeded with 42
TOLERANCE = 1e-3
SKIPPED_WEIGHTS = 23_816_528  # weights of its 94 convolutions and of its classifier, 2048 x 1008 + 1008

Size = int | tuple[int, int]
Branch = list[tuple[int, Size]]  # output channels and kernel of each convolution
ROW, COLUMN = (1, 7), (7, 1)


class BasicConv2d(nn.Module):
    """Convolution, batch normalisation, ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: Size, *, stride: int = 1, padded: bool = True) -> None:
        super().__init__()
        height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        padding = (height // 2, width // 2) if padded else 0
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        return relu(self.bn(self.conv(x)), inplace=True)


def average_pool(x: Tensor) -> Tensor:
    """TensorFlow's pooling does not count the border; torchvision's Inception does, and so is another network."""
    return avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)


class Mixed(nn.Module):
    """Chains of convolutions on the same input, concatenated; with `shrink`, each chain ends with stride 2."""

    def __init__(self, inputs: int, *, shrink: bool = False, **branches: Branch) -> None:
        super().__init__()
        self.shrink, self.chains = shrink, list[list[str]]()
        for branch, layers in branches.items():
            names = [f"{branch}_{place + 1}" for place in range(len(layers))] if len(layers) > 1 else [branch]
            widths = [inputs, *(outputs for outputs, _ in layers)]
            for name, width, (outputs, kernel) in zip(names, widths, layers, strict=False):
                last = shrink and name == names[-1]
                self.add_module(name, BasicConv2d(width, outputs, kernel, stride=2 if last else 1, padded=not last))
            self.chains.append(names)

    def forward(self, x: Tensor) -> Tensor:
        found = []
        for names in self.chains:
            branch = average_pool(x) if names == ["branch_pool"] else x
            for name in names:
                branch = self.get_submodule(name)(branch)
            found.append(branch)
        return torch.cat([*found, max_pool2d(x, 3, stride=2)] if self.shrink else found, 1)


def grid35(inputs: int, pooled: int) -> Mixed:
    """Mixed_5*: 35 x 35 positions, branches of 1, 5 and twice 3 pixels."""
    return Mixed(
        inputs,
        branch1x1=[(64, 1)],
        branch5x5=[(48, 1), (64, 5)],
        branch3x3dbl=[(64, 1), (96, 3), (96, 3)],
        branch_pool=[(pooled, 1)],
    )


def grid17(middle: int) -> Mixed:
    """Mixed_6b to 6e: 17 x 17 positions, a field of 7 pixels as rows and columns."""
    double: Branch = [(middle, 1), (middle, COLUMN), (middle, ROW), (middle, COLUMN), (192, ROW)]
    return Mixed(
        768,
        branch1x1=[(192, 1)],
        branch7x7=[(middle, 1), (middle, ROW), (192, COLUMN)],
        branch7x7dbl=double,
        branch_pool=[(192, 1)],
    )


class Grid8(nn.Module):
    """Mixed_7b and 7c: 8 x 8 positions; in the last one the graph of 2015 takes the maximum, not the average."""

    def __init__(self, inputs: int, *, last: bool) -> None:
        super().__init__()
        self.last = last
        self.branch1x1 = BasicConv2d(inputs, 320, 1)
        self.branch3x3_1 = BasicConv2d(inputs, 384, 1)
        self.branch3x3_2a = BasicConv2d(384, 384, (1, 3))
        self.branch3x3_2b = BasicConv2d(384, 384, (3, 1))
        self.branch3x3dbl_1 = BasicConv2d(inputs, 448, 1)
        self.branch3x3dbl_2 = BasicConv2d(448, 384, 3)
        self.branch3x3dbl_3a = BasicConv2d(384, 384, (1, 3))
        self.branch3x3dbl_3b = BasicConv2d(384, 384, (3, 1))
        self.branch_pool = BasicConv2d(inputs, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        single = self.branch3x3_1(x)
        double = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        pooled = max_pool2d(x, 3, stride=1, padding=1) if self.last else average_pool(x)
        singles = self.branch3x3_2a(single), self.branch3x3_2b(single)
        doubles = self.branch3x3dbl_3a(double), self.branch3x3dbl_3b(double)
        return torch.cat([self.branch1x1(x), *singles, *doubles, self.branch_pool(pooled)], 1)


class Inception(nn.Module):
    """Grey levels 0 to 255 of shape [n, 3, 299, 299] to means over the positions of the last layer, or of the first
    that FID can be taken of (`tap` 64), which is all that `self_check` needs.

    The names are those of the files that carry these weights elsewhere: torchvision's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.Conv2d_1a_3x3 = BasicConv2d(3, 32, 3, stride=2, padded=False)
        self.Conv2d_2a_3x3 = BasicConv2d(32, 32, 3, padded=False)
        self.Conv2d_2b_3x3 = BasicConv2d(32, 64, 3)
        self.Conv2d_3b_1x1 = BasicConv2d(64, 80, 1)
        self.Conv2d_4a_3x3 = BasicConv2d(80, 192, 3, padded=False)
        self.Mixed_5b = grid35(192, 32)
        self.Mixed_5c = grid35(256, 64)
        self.Mixed_5d = grid35(288, 64)
        self.Mixed_6a = Mixed(288, shrink=True, branch3x3=[(384, 3)], branch3x3dbl=[(64, 1), (96, 3), (96, 3)])
        self.Mixed_6b = grid17(128)
        self.Mixed_6c = grid17(160)
        self.Mixed_6d = grid17(160)
        self.Mixed_6e = grid17(192)
        seven: Branch = [(192, 1), (192, ROW), (192, COLUMN), (192, 3)]
        self.Mixed_7a = Mixed(768, shrink=True, branch3x3=[(192, 1), (320, 3)], branch7x7x3=seven)
        self.Mixed_7b = Grid8(1280, last=False)
        self.Mixed_7c = Grid8(2048, last=True)

    def forward(self, levels: Tensor, tap: int = DIMENSION) -> Tensor:
        x = (levels - 128) / 128  # as in the graph: 255 becomes 0.992
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = max_pool2d(x, 3, stride=2)
        if tap == 64:
            return x.mean((2, 3))
        assert tap == DIMENSION, f"there is no tap {tap}, only 64 and {DIMENSION}"
        x = max_pool2d(self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(x)), 3, stride=2)
        x = self.Mixed_6a(self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(x))))
        x = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(self.Mixed_6b(x))))
        return self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x))).mean((2, 3))


def self_check(network: nn.Module) -> float:
    """The distance that torchmetrics' documentation prints as 12.6388: 100 noise images each of two brightnesses.

    It reaches only the first three convolutions, but also pixels, normalisation and pooling; the others are known by
    their hash. About ten seconds on one core.
    """
    numbers = torch.Generator().manual_seed(42)  # of its own: the caller's stream is left alone
    # The example is seeded before its network is made, whose random first weights use up so many numbers.
    torch.empty(SKIPPED_WEIGHTS).uniform_(generator=numbers)
    shape, device = (100, 3, SIDE, SIDE), next(network.parameters()).device
    moments = []
    for low, high in ((0, 200), (100, 255)):
        images = torch.randint(low, high, shape, dtype=torch.uint8, generator=numbers)
        with torch.inference_mode():
            taps = torch.cat([network(part.to(device).float(), 64).double().cpu() for part in images.split(10)])
        moments.append((taps.mean(0), torch.cov(taps.T)))
    (mean, covariance), (other_mean, other) = moments
    # Written out here, so that the proof of the weights leans on nothing that it is used to prove.
    cross = torch.linalg.eigvals(covariance @ other).real.clamp_min(0).sqrt().sum()
    distance = (mean - other_mean).square().sum() + covariance.trace() + other.trace() - 2 * cross
    return float(distance)
