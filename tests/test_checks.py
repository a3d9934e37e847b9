"""Every reading of a probe is declared once, produced by a probe, and read by a rule or only documented."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import safelight
from safelight import checks
from safelight.checks import ProbeReading
from safelight.vocabulary import SIGNALS

PACKAGE = Path(safelight.__file__).parent
RULES = sorted((PACKAGE / "diagnosis").rglob("*.py"))
PROBES = [
    *sorted((PACKAGE / "probes").rglob("*.py")),
    *sorted((PACKAGE / "capturing").rglob("*.py")),
    PACKAGE / "watching" / "auto.py",
    PACKAGE / "training" / "preflight.py",
    PACKAGE / "healing" / "rates.py",
    PACKAGE / "training" / "previews.py",
    PACKAGE / "observing" / "batch_check.py",
    PACKAGE / "observing" / "sample_check.py",
    PACKAGE / "observing" / "stage_pictures.py",
]
FAMILIES = {name: value for name, value in vars(checks).items() if isinstance(value, dict | tuple) and name.isupper()}
DECLARED = {name: value for name, value in vars(checks).items() if isinstance(value, ProbeReading)}


def of_family(name: str) -> list[ProbeReading]:
    value = FAMILIES[name]
    return [
        check for check in (value.values() if isinstance(value, dict) else value) if isinstance(check, ProbeReading)
    ]


EVERY = sorted({*DECLARED.values(), *(check for name in FAMILIES for check in of_family(name))})
AREAS = sorted({check.partition("/")[0] for check in EVERY})

# Recorded for people who read the record; no rule needs them.
DOCUMENTED = {
    checks.SCHEDULE_OUTSIDE, checks.SCHEDULE_LARGEST_JUMP, checks.OPTIMIZER_TWICE, checks.OPTIMIZER_RATE,
    checks.DATA_HIGHEST, checks.DATA_INTEGER, checks.DATA_REACH,
    checks.STREAM_ALIKE["noise"], checks.DATA_MEAN, checks.DATA_STD, checks.NOISE_LOWEST,
    checks.NOISE_HIGHEST, checks.TARGET_SQUARE, checks.LOSS_SLOPE, checks.STREAM_TIMES_ALIKE,
    checks.NETWORK_FINITE, checks.NETWORK_SAME_SHAPE, checks.NETWORK_SQUARE,
    checks.NETWORK_RANDOM, checks.NETWORK_REACHED, checks.NETWORK_REHEARSED, checks.UPDATE_WEIGHTS,
    checks.REPLAY_OUTPUT_ERROR, checks.REPLAY_ZERO, checks.REPLAY_MISSING, checks.SAMPLER_ERROR,
    checks.SAMPLER_CLOUD_MEAN, checks.SAMPLER_CLOUD_SCALE, checks.SAMPLER_CLOUD_SHIFT, checks.SAMPLER_LAST,
    checks.SAMPLER_FALLING, checks.SAMPLER_FAILED,
}  # fmt: skip


def used_in(source: str) -> set[ProbeReading]:
    """The checks that code names: `checks.NAME`, or a family, whole or by its key."""
    found: set[ProbeReading] = set()
    subscripted: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            name = _name(node.value)
            if isinstance(FAMILIES.get(name), dict):
                found.add(FAMILIES[name][node.slice.value])
                subscripted.add(id(node.value))
        elif isinstance(node, ast.Attribute) and id(node) not in subscripted:
            if (name := _name(node)) in DECLARED:
                found.add(DECLARED[name])
            elif name in FAMILIES:
                found.update(of_family(name))
    return found


def _name(node: ast.AST) -> str:
    is_ours = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "checks"
    return node.attr if is_ours and isinstance(node, ast.Attribute) else ""


def bare_in(source: str) -> Iterator[str]:
    """Strings that look like the name of a reading, and are not a docstring."""
    tree = ast.parse(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    named = re.compile(rf"(check/)?({'|'.join(AREAS)})/(\w|$)")
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
        if is_text and named.match(node.value):
            yield f"line {node.lineno}: {node.value!r}"


def used(files: list[Path]) -> set[ProbeReading]:
    return set().union(*(used_in(file.read_text(encoding="utf-8")) for file in files))


def test_every_check_that_a_rule_reads_is_produced() -> None:
    assert sorted(used(RULES) - used(PROBES)) == []


def test_every_check_that_is_produced_is_read_or_documented() -> None:
    assert sorted(set(EVERY) - used(PROBES)) == []
    assert sorted(used(PROBES) - used(RULES) - DOCUMENTED) == []
    assert sorted(DOCUMENTED & used(RULES)) == []


@pytest.mark.parametrize("file", [*RULES, *PROBES], ids=lambda file: str(file.relative_to(PACKAGE)))
def test_no_name_is_written_by_hand(file: Path) -> None:
    allowed = "'batch/" if file.name == "preflight.py" else "-"  # beginnings of names, not names
    assert [each for each in bare_in(file.read_text(encoding="utf-8")) if allowed not in each] == []


def test_probes_import_nothing_of_the_diagnosis() -> None:
    for file in (PACKAGE / "probes").glob("*.py"):
        assert "safelight.diagnosis" not in file.read_text(encoding="utf-8"), file


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("case.latest(checks.LOSS_MSE)", ["loss/error"]),
        ("checks.NONFINITE['x0']", ["finite/x0"]),
        ("for check in checks.RESPONSE.values(): pass", ["response/conditions", "response/labels", "response/time"]),
        ("_moments(checks.NOISE_MOMENTS, x)", ["noise/highest", "noise/lowest", "noise/mean", "noise/std"]),
        ("other.LOSS_MSE", []),
        ("checks.FORWARD_LIMIT", []),
    ],
)
def test_the_search_sees_what_is_used(source: str, names: list[str]) -> None:
    assert sorted(used_in(source)) == names


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("told['loss/error'] = 1", 1),
        ("told['loss/eror'] = 1", 1),  # a typo
        ("case.check(f'target/{kind}')", 1),
        ("Evidence('check/loss/error', 1)", 1),
        ("def f():\n    'Reads loss/error.'", 0),
        ("told[checks.LOSS_MSE] = 1", 0),
        ("Evidence('loss over error', 1)", 0),
        ("open('logs/error')", 0),
    ],
)
def test_the_search_sees_what_is_written_by_hand(source: str, count: int) -> None:
    assert len(list(bare_in(source))) == count


def test_names_are_unique_and_meanings_are_sentences() -> None:
    names = [*DECLARED.values(), *(check for name, each in FAMILIES.items() if isinstance(each, dict)
                                   for check in of_family(name))]  # fmt: skip
    assert sorted(set(names)) == sorted(names)
    for check in names:
        assert re.fullmatch(r"[a-z]+/[a-z0-9_.]+", check)
        assert re.fullmatch(r"[A-Z0-9].*\.", check.meaning), check
        assert check.implied_by is None or check.implied_by in names
    assert not set(names) & {signal.name for signal in SIGNALS}


def test_places_in_the_record_stay() -> None:
    """A record holds the place of a word in a list: another order would name another type."""
    assert checks.PREDICTIONS == ("epsilon", "sample", "v_prediction", "flow", "edm", "reverse_flow", "score")
    assert checks.TIMES_TOLD[:4] == ("t = s", "t = 1000·s", "t = sigma", "t = log(sigma) / 4")
    assert checks.SCHEDULES == ("cosine", "linear", "scaled-linear", "sigmoid")
