"""Owns the Inception network of 2015-12-05 that defines FID, and the proof that its first layers are the true ones."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, max_pool2d, relu

SIDE = 299
TAPS = (64, 192, 768, 2048)
PUBLISHED = 12.6388  # FID(feature=64) of the example in torchmetrics' documentation since 1.0, seeded with 42
TOLERANCE = 1e-3
SKIPPED = 23_816_528  # weights of its 94 convolutions and of its classifier, 2048 x 1008 + 1008

Size = int | tuple[int, int]


class BasicConv2d(nn.Module):
    """Convolution, batch normalisation, ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: Size, *, stride: int = 1, padding: Size = 0) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        return relu(self.bn(self.conv(x)), inplace=True)


def row(inputs: int, outputs: int, length: int) -> BasicConv2d:
    return BasicConv2d(inputs, outputs, (1, length), padding=(0, length // 2))


def column(inputs: int, outputs: int, length: int) -> BasicConv2d:
    return BasicConv2d(inputs, outputs, (length, 1), padding=(length // 2, 0))


def average(x: Tensor) -> Tensor:
    """TensorFlow's pooling does not count the border; torchvision's Inception does, and so is another network."""
    return avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)


class Grid35(nn.Module):
    """Mixed_5*: 35 x 35 positions, branches of 1, 5 and twice 3 pixels."""

    def __init__(self, inputs: int, pooled: int) -> None:
        super().__init__()
        self.branch1x1 = BasicConv2d(inputs, 64, 1)
        self.branch5x5_1 = BasicConv2d(inputs, 48, 1)
        self.branch5x5_2 = BasicConv2d(48, 64, 5, padding=2)
        self.branch3x3dbl_1 = BasicConv2d(inputs, 64, 1)
        self.branch3x3dbl_2 = BasicConv2d(64, 96, 3, padding=1)
        self.branch3x3dbl_3 = BasicConv2d(96, 96, 3, padding=1)
        self.branch_pool = BasicConv2d(inputs, pooled, 1)

    def forward(self, x: Tensor) -> Tensor:
        five = self.branch5x5_2(self.branch5x5_1(x))
        three = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat([self.branch1x1(x), five, three, self.branch_pool(average(x))], 1)


class Shrink35(nn.Module):
    """Mixed_6a: 35 x 35 to 17 x 17."""

    def __init__(self) -> None:
        super().__init__()
        self.branch3x3 = BasicConv2d(288, 384, 3, stride=2)
        self.branch3x3dbl_1 = BasicConv2d(288, 64, 1)
        self.branch3x3dbl_2 = BasicConv2d(64, 96, 3, padding=1)
        self.branch3x3dbl_3 = BasicConv2d(96, 96, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat([self.branch3x3(x), double, max_pool2d(x, 3, stride=2)], 1)


class Grid17(nn.Module):
    """Mixed_6b to 6e: 17 x 17 positions, a field of 7 pixels as rows and columns."""

    def __init__(self, middle: int) -> None:
        super().__init__()
        self.branch1x1 = BasicConv2d(768, 192, 1)
        self.branch7x7_1 = BasicConv2d(768, middle, 1)
        self.branch7x7_2 = row(middle, middle, 7)
        self.branch7x7_3 = column(middle, 192, 7)
        self.branch7x7dbl_1 = BasicConv2d(768, middle, 1)
        self.branch7x7dbl_2 = column(middle, middle, 7)
        self.branch7x7dbl_3 = row(middle, middle, 7)
        self.branch7x7dbl_4 = column(middle, middle, 7)
        self.branch7x7dbl_5 = row(middle, 192, 7)
        self.branch_pool = BasicConv2d(768, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        single = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        double = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        double = self.branch7x7dbl_5(self.branch7x7dbl_4(double))
        return torch.cat([self.branch1x1(x), single, double, self.branch_pool(average(x))], 1)


class Shrink17(nn.Module):
    """Mixed_7a: 17 x 17 to 8 x 8."""

    def __init__(self) -> None:
        super().__init__()
        self.branch3x3_1 = BasicConv2d(768, 192, 1)
        self.branch3x3_2 = BasicConv2d(192, 320, 3, stride=2)
        self.branch7x7x3_1 = BasicConv2d(768, 192, 1)
        self.branch7x7x3_2 = row(192, 192, 7)
        self.branch7x7x3_3 = column(192, 192, 7)
        self.branch7x7x3_4 = BasicConv2d(192, 192, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        three = self.branch3x3_2(self.branch3x3_1(x))
        seven = self.branch7x7x3_2(self.branch7x7x3_1(x))
        seven = self.branch7x7x3_4(self.branch7x7x3_3(seven))
        return torch.cat([three, seven, max_pool2d(x, 3, stride=2)], 1)


class Grid8(nn.Module):
    """Mixed_7b and 7c: 8 x 8 positions; in the last one the graph of 2015 takes the maximum, not the average."""

    def __init__(self, inputs: int, *, last: bool) -> None:
        super().__init__()
        self.last = last
        self.branch1x1 = BasicConv2d(inputs, 320, 1)
        self.branch3x3_1 = BasicConv2d(inputs, 384, 1)
        self.branch3x3_2a = row(384, 384, 3)
        self.branch3x3_2b = column(384, 384, 3)
        self.branch3x3dbl_1 = BasicConv2d(inputs, 448, 1)
        self.branch3x3dbl_2 = BasicConv2d(448, 384, 3, padding=1)
        self.branch3x3dbl_3a = row(384, 384, 3)
        self.branch3x3dbl_3b = column(384, 384, 3)
        self.branch_pool = BasicConv2d(inputs, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        single = self.branch3x3_1(x)
        double = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        pooled = max_pool2d(x, 3, stride=1, padding=1) if self.last else average(x)
        return torch.cat(
            [
                self.branch1x1(x),
                self.branch3x3_2a(single),
                self.branch3x3_2b(single),
                self.branch3x3dbl_3a(double),
                self.branch3x3dbl_3b(double),
                self.branch_pool(pooled),
            ],
            1,
        )


class Inception(nn.Module):
    """Grey levels 0 to 255 of shape [n, 3, 299, 299] to averages over the positions of one layer.

    The names are those of the files that carry these weights elsewhere: torchvision's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.Conv2d_1a_3x3 = BasicConv2d(3, 32, 3, stride=2)
        self.Conv2d_2a_3x3 = BasicConv2d(32, 32, 3)
        self.Conv2d_2b_3x3 = BasicConv2d(32, 64, 3, padding=1)
        self.Conv2d_3b_1x1 = BasicConv2d(64, 80, 1)
        self.Conv2d_4a_3x3 = BasicConv2d(80, 192, 3)
        self.Mixed_5b = Grid35(192, 32)
        self.Mixed_5c = Grid35(256, 64)
        self.Mixed_5d = Grid35(288, 64)
        self.Mixed_6a = Shrink35()
        self.Mixed_6b = Grid17(128)
        self.Mixed_6c = Grid17(160)
        self.Mixed_6d = Grid17(160)
        self.Mixed_6e = Grid17(192)
        self.Mixed_7a = Shrink17()
        self.Mixed_7b = Grid8(1280, last=False)
        self.Mixed_7c = Grid8(2048, last=True)

    def forward(self, levels: Tensor, tap: int = 2048) -> Tensor:
        x = (levels - 128) / 128  # as in the graph: 255 becomes 0.992
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = max_pool2d(x, 3, stride=2)
        if tap == 64:
            return x.mean((2, 3))
        x = max_pool2d(self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(x)), 3, stride=2)
        if tap == 192:
            return x.mean((2, 3))
        x = self.Mixed_6a(self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(x))))
        x = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(self.Mixed_6b(x))))
        if tap == 768:
            return x.mean((2, 3))
        assert tap == 2048, f"there is no tap {tap}, only {TAPS}"
        return self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x))).mean((2, 3))


def self_check(network: nn.Module) -> float:
    """The distance that torchmetrics' documentation prints as 12.6388: 100 noise images each of two brightnesses.

    It reaches only the first three convolutions, but also pixels, normalisation and pooling; the others are known by
    their hash. About ten seconds on one core.
    """
    numbers = torch.Generator().manual_seed(42)  # of its own: the caller's stream is left alone
    # The example is seeded before its network is made, whose random first weights use up so many numbers.
    torch.empty(SKIPPED).uniform_(generator=numbers)
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
