"""The report on a set of images: facts, and remarks on what they mean for training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from safelight.config.tree import Data
from safelight.data.images import Images, hold_out, straddling
from safelight.words import in_bytes

Line = tuple[str, str]
BAR = 24
MARKS = {"grey": "grey", "transparent": "transparent", "turned": "turned upright", "blank": "of one colour"}
CLASSES = 20  # that are shown one by one
FEW_IMAGES = 1000  # images, below which a model learns them by heart rather than what they have in common
MAX_SHARE_OF_COPIES, MAX_SHARE_LOST, MAX_SHARE_SMALL, MIN_LEVELS, MAX_CLASS_RATIO = 0.01, 0.25, 0.1, 64, 10.0


def summary(images: Images, data: Data) -> dict[str, Any]:
    """Everything that is known of the set, as plain data: what `--json`, the run folder and the record hold."""
    _, held = hold_out(images, data.held_out)
    return {
        "source": data.source,
        "fingerprint": images.fingerprint,
        **images.facts,
        "held_out": len(held),
        "straddling": straddling(images, held),
        "rejected": [list(pair) for pair in images.rejected],
    }


def too_bad(rejected: int, kept: int, data: Data) -> bool:
    """Whether training refuses the set: more of its files cannot be used than data.max_bad allows."""
    return rejected > data.max_bad * (rejected + kept)


def lines(found: Mapping[str, Any]) -> Iterator[Line]:
    """(name, text) of each line, top to bottom."""
    kind = "grey" if found["channels"] == 1 else "colour"
    yield "images", f"{found['images']:,} of {found['side']} x {found['side']} px, {kind}"
    if found["formats"]:
        kinds = ", ".join(f"{count:,} {name}" for name, count in found["formats"].items())
        yield "files", f"{in_bytes(found['file_bytes'])}: {kinds}"
        yield from _sizes(found)
    yield "left out", f"{len(found['rejected']):,}" + (" (below)" if found["rejected"] else "")
    mean, std = (" ".join(f"{level:.0f}" for level in found[name]) for name in ("mean", "std"))
    yield "levels", f"{found['low']} to {found['high']} of 255, mean {mean}, deviation {std}"
    marks = [f"{found[name]:,} {words}" for name, words in MARKS.items() if found[name]]
    if marks:
        yield "of them", ", ".join(marks)
    yield "copies", f"{found['duplicates']:,} equal another one; pairs that look alike: {found['near']:,}"
    if found["held_out"]:
        near = f"; {found['straddling']:,} of them look like one that is trained on" if found["straddling"] else ""
        yield "held out", f"{found['held_out']:,}{near}"
    yield from _classes(found["classes"])


def remarks(found: Mapping[str, Any], data: Data) -> Iterator[str]:
    """What in the data will show in the model, and what to do about it. Silent about a healthy set."""
    images, total = found["images"], found["images"] + len(found["rejected"])
    if too_bad(len(found["rejected"]), images, data):
        yield (
            f"{len(found['rejected']):,} of {total:,} files cannot be used, more than data.max_bad "
            f"({data.max_bad:.0%}) allows: training would refuse this set."
        )
    different = images - found["duplicates"]
    if found["duplicates"] > MAX_SHARE_OF_COPIES * images:
        left = f", which leaves {different:,} different image{'s' * (different != 1)}" if different < FEW_IMAGES else ""
        yield f"Copies: {found['duplicates']:,}{left}. What is seen twice is learnt by heart first. Remove them."
    if different < FEW_IMAGES:
        yield (
            f"Few: {different:,}. A model learns so few images by heart. More of them help most; "
            "--set data.flip=true and data.random_crop=0.1 help a little."
        )
    if found["in_two_classes"]:
        yield f"In several classes: {found['in_two_classes']:,}. Their labels contradict each other."
    if found["blank"]:
        yield f"Of one colour: {found['blank']:,}. They teach nothing. Remove them if that is not meant."
    if found["lost"] > MAX_SHARE_LOST and data.fit == "crop":
        yield (
            f"Cropping to squares cuts away {found['lost']:.0%} of the pictures on average. "
            "--set data.fit=pad keeps all of them, with bars."
        )
    if found["enlarged"] > MAX_SHARE_SMALL * images:
        yield (
            f"Smaller than {data.image_size} px and enlarged: {found['enlarged']:,}. The model will learn their blur. "
            "Train at a smaller --image-size, or leave them out."
        )
    if found["high"] - found["low"] < MIN_LEVELS:
        yield (
            f"All levels lie between {found['low']} and {found['high']} of 255: the images were probably scaled "
            "before they were saved. Save them again with levels from 0 to 255."
        )
    counts = [count for count in found["classes"].values() if count]
    if len(counts) > 1 and max(counts) > MAX_CLASS_RATIO * min(counts) and not data.balance:
        yield (
            f"The largest class has {max(counts) / min(counts):.0f} times as many images as the smallest. "
            "--set data.balance=true draws all classes equally often."
        )


def in_short(remark: str) -> str:
    """What is wrong and why, without what to do about it: the first two sentences."""
    return ". ".join(remark.removesuffix(".").split(". ")[:2]) + "."


def _sizes(found: Mapping[str, Any]) -> Iterator[Line]:
    yield "sizes", ", ".join(f"{width} x {height} ({count:,})" for width, height, count in found["common_sizes"])
    (thin, _, wide), (low, _, high) = found["widths"], found["heights"]
    if len(found["common_sizes"]) > 1:
        yield "", f"widths {thin} to {wide} px, heights {low} to {high} px"
    if found["lost"]:
        most = f"images that lose over a quarter: {found['much_lost']:,}"
        yield "cropped", f"{found['lost']:.0%} of the area on average; {most}"
    if found["enlarged"]:
        yield "enlarged", f"{found['enlarged']:,}"


def _classes(classes: Mapping[str, int]) -> Iterator[Line]:
    most = max(classes.values(), default=0)
    width = max(map(len, classes), default=0)
    shown = sorted(classes.items(), key=lambda each: -each[1]) if len(classes) > CLASSES else list(classes.items())
    for place, (name, count) in enumerate(shown[:CLASSES]):
        bar = "█" * max(1, round(BAR * count / most)) if count else ""
        yield "" if place else "classes", f"{name:<{min(width, 30)}} {bar:<{BAR}} {count:,}"
    if len(classes) > CLASSES:
        yield "", f"and {len(classes) - CLASSES:,} more, down to {shown[-1][1]:,} images"
