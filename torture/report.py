"""The tables of the suite, and the file that keeps the outcome of every piece until all are done."""

from __future__ import annotations

import fcntl
import json
import platform
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import torch

from safelight.files import write_atomically
from torture.scenario import Outcome, Scenario, is_as_wanted, merge, shortfall

TABLE, PIECES = "torture.md", "pieces.json"
PACKAGES = ("safelight", "torch", "pillow", "safetensors", "accelerate")

Found = dict[str, dict[str, Outcome]]  # scenario -> its cases as "0:100" -> what came of them


def read_pieces(folder: Path, command: str) -> Found:
    """What was kept of this command; another seed begins anew."""
    try:
        kept = json.loads((folder / PIECES).read_text())
    except FileNotFoundError:
        return {}
    pieces = kept["pieces"] if kept["command"] == command else {}
    return {name: {cases: Outcome.from_json(each) for cases, each in found.items()} for name, found in pieces.items()}


def add(folder: Path, name: str, cases: str, outcome: Outcome, scenarios: Mapping[str, Scenario], command: str) -> None:
    """One more piece, and the table anew; another process may be adding others."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f".{PIECES}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = read_pieces(folder, command)
        found.setdefault(name, {})[cases] = outcome
        pieces = {name: {cases: each.to_json() for cases, each in pieces.items()} for name, pieces in found.items()}
        kept = {"command": command, "pieces": pieces}
        write_atomically(folder / PIECES, (json.dumps(kept, indent=1) + "\n").encode())
        write_atomically(folder / TABLE, render(found, scenarios, command).encode())


def render(found: Found, scenarios: Mapping[str, Scenario], command: str) -> str:
    whole = {
        name: merge(list(found[name].values()), alike=scenarios[name].alike) for name in scenarios if name in found
    }
    properties = {name: each for name, each in whole.items() if not scenarios[name].is_control}
    controls = {name: each for name, each in whole.items() if scenarios[name].is_control}
    lines = ["# Torture", "", f"    {command}", "", surroundings(), "", headline(properties), ""]
    lines += [
        "| scenario | counted | wanted | lost | seconds | sha256 of the finals | |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_row(scenarios[name], each) for name, each in properties.items()]
    lines += ["", *(f"- **{name}**: {_told(scenarios[name], each)}" for name, each in properties.items())]
    if controls:
        lines += ["", "Controls: something is broken on purpose, and the suite must find it out.", ""]
        lines += ["| control | tried | found out | the first of them | |", "|---|---|---|---|---|"]
        lines += [_control_row(scenarios[name], each) for name, each in controls.items()]
        lines += ["", *(f"- **{name}**: {scenarios[name].deed}" for name in controls)]
    return "\n".join(lines) + "\n"


def headline(properties: Mapping[str, Outcome]) -> str:
    faults, lost = sum(each.count for each in properties.values()), sum(len(each.lost) for each in properties.values())
    seconds = sum(each.seconds for each in properties.values())
    return f"**{faults:,} faults, {lost} lost**, {seconds / 60:.0f} minutes of one core."


def surroundings() -> str:
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES)
    today, python = f"{datetime.now(UTC):%Y-%m-%d}", platform.python_version()
    return f"{today}; Python {python}, {versions}; {torch.get_num_threads()} thread."


def _row(scenario: Scenario, found: Outcome) -> str:
    finals = f"`{found.finals[:16]}…`" if found.finals else "–"
    missing = shortfall(scenario, found)
    state = "**red**" if not is_as_wanted(scenario, found) else f"short: {'; '.join(missing)}" if missing else "green"
    cells = [scenario.name, f"{found.count:,} {scenario.unit}", f"{scenario.wanted:,}", len(found.lost),
             f"{found.seconds:,.0f}", finals, state]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def _told(scenario: Scenario, found: Outcome) -> str:
    parts = ", ".join(f"{name} {count:,}" for name, count in found.tally.most_common())
    return f"{scenario.deed}{f' Of these: {parts}.' if parts else ''}"


def _control_row(scenario: Scenario, found: Outcome) -> str:
    seen = [words for _, words in found.lost if scenario.symptom in words]
    first = seen[0] if seen else (found.lost[0][1] if found.lost else "nothing")
    state = "red, as it must" if seen else "**green: the suite cannot see this**"
    words = re.sub(r"\S*/safelight-torture-\w+/", "", " ".join(first.split())).replace("|", "/")[:160]
    return f"| {scenario.name} | {found.count:,} {scenario.unit} | {len(seen):,} | {words} | {state} |"
