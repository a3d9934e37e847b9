"""What the pixels of samples say of them: blank, alike, saturated, off in colour, noisy, or as those of real images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from safelight.diagnosis.sample_quality import Kind, SampleQuality

# Of 64 samples; one healthy run each of digits (8 px, grey, to a skill of 1.20) and shapes (16 px, colour, to 0.78),
# nine pictures from a skill of about 0.5 on. No healthy run in colour with a skill above 1 was measured.
# Of the lowest contrast of real images, which sets of 64 have at 0.95; healthy samples had 0.87 to 1.19
FLAT_CONTRAST = 0.35
SAME_SPREAD = 0.35  # of their lowest spread from image to image, 0.93; healthy samples had 0.84 to 0.97
LOST_VALUES_SHARE = 0.5  # of the values between both ends that real images have; healthy samples had 0.96 and more
SHIFTED_COLOUR = 1.0  # spreads of the colour of real images, 0.26 at most for these
FAR_SHIFTED_COLOUR = 2.0  # healthy samples had up to
# 0.53, a run at 25 times the usual rate 1.8 to 2.0
# Times the highest grain of real images, 1.06; digits had up to 0.95, shapes 2.18 at a skill of 0.54, 1.98 at
NOISY = 1.8
# 0.71 and 1.67 at 0.78. Raised from 1.6 after a look at these runs; below a skill of 1 it is called undertrained.

MIN_SAMPLES = 16  # samples that are judged


def judge_appearance(facts: Mapping[str, Any]) -> SampleQuality:
    """`facts`: of an “appearance” event. Only gross faults are named: likeness and variety take an evaluation."""
    if facts["count"] < MIN_SAMPLES and not facts["nonfinite"]:
        return SampleQuality(None, None, f"{facts['count']} samples are too few to be judged.")
    kind = _kind(facts)
    return SampleQuality(kind, None, _sentence(kind, facts))


def _kind(facts: Mapping[str, Any]) -> Kind | None:
    contrast, apart, saturated = facts["contrast"], facts["apart"], facts["saturated"]
    if facts["nonfinite"] > 0:
        return "saturated"
    if contrast["value"] < FLAT_CONTRAST * contrast["low"]:
        return "blank"
    if apart["value"] < SAME_SPREAD * apart["low"]:
        return "alike"
    if 1 - saturated["value"] < LOST_VALUES_SHARE * (1 - saturated["high"]):
        return "saturated"
    if facts["grain"]["value"] > NOISY * facts["grain"]["high"]:
        return "noisy"
    return (
        "off-colour"
        if facts["colour"]["value"] > max(SHIFTED_COLOUR, FAR_SHIFTED_COLOUR * facts["colour"]["high"])
        else None
    )


def _sentence(kind: Kind | None, facts: Mapping[str, Any]) -> str:
    def number(name: str) -> str:
        return f"{facts[name]['value']:.2f} times"

    if kind == "saturated" and facts["nonfinite"] > 0:
        return f"{facts['nonfinite']:.1%} of the values of the samples are not finite."
    if kind == "saturated":
        share, usual = facts["saturated"]["value"], facts["saturated"]["high"]
        return (
            f"The samples are saturated: {share:.0%} of their values are at an end of the range, where real images "
            f"have at most {usual:.0%}."
        )
    words = {
        "blank": f"The samples are blank: they have {number('contrast')} the contrast of real images.",
        "alike": f"The samples are all alike: they differ {number('apart')} as much as real images do.",
        "noisy": f"The samples are noisy: neighbouring pixels differ {number('grain')} as much as in real images.",
        "off-colour": f"The colours of the samples are off: the mean of a channel is {number('colour')} as far from "
        "that of real images as these are spread.",
    }
    usual = "Contrast, colours and grain of the samples are about those of real images; what they show was not judged."
    return words.get(kind or "", usual)
