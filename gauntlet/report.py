"""The results in words and tables, and as a file of every run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from gauntlet.metrics import harm, is_harmed
from gauntlet.scenario import Verdict
from gauntlet.score import Baseline, Score, alarms, baselines, score


def write(verdicts: Sequence[Verdict], folder: Path, *, command: str, name: str = "gauntlet") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [verdict.to_json() for verdict in verdicts]
    (folder / f"{name}.json").write_text(json.dumps({"command": command, "runs": rows}, indent=1) + "\n")
    (folder / f"{name}.md").write_text(to_markdown(verdicts, command))


def write_floor(verdicts: Sequence[Verdict], path: Path, command: str) -> None:
    """What the fast subset finds at least: the tests allow nothing to fall out of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {what: sorted(names) for what, names in _found(verdicts).items()}
    path.write_text(json.dumps({"command": command} | kept, indent=1) + "\n")


def _found(verdicts: Sequence[Verdict]) -> dict[str, set[str]]:
    judged = score(verdicts).judged
    return {
        what: {f"{each.verdict.base}: {each.verdict.id}" for each in judged if getattr(each, what)}
        for what in ("detected", "top1")
    }


def fallen(verdicts: Sequence[Verdict], floor: Path) -> dict[str, list[str]]:
    """What was found once and is not any more."""
    once, now = json.loads(floor.read_text()), _found(verdicts)
    return {what: lost for what in now if (lost := sorted(set(once[what]) - now[what]))}


def read(path: Path) -> list[Verdict]:
    return [Verdict.from_json(row) for row in json.loads(path.read_text())["runs"]]


def to_markdown(verdicts: Sequence[Verdict], command: str) -> str:
    found = score(verdicts)
    seeds = sorted({verdict.seed for verdict in verdicts})
    lines = [
        "# Gauntlet",
        "",
        f"`{command}`: {len(found.judged)} faulty runs, {len(found.healthy)} healthy ones, seeds {seeds}, "
        f"{sum(verdict.seconds for verdict in verdicts):.0f} s of one core.",
        "",
        *_headline(found),
        "",
        *_bases(found),
        "",
        *_baselines(baselines(verdicts)),
        "",
        *_false_alarms(found),
        "",
        *_misses(found),
    ]
    return "\n".join(lines) + "\n"


def _headline(found: Score) -> list[str]:
    rows = {"detected": "detected", "cause, first": "top1", "cause, first three": "top3", "subsystem": "subsystem"}
    table = ["| | runs (95 % bounds) | fault types |", "|---|---|---|"]
    table += [f"| {name} | {found.share(what)} | {found.by_fault(what)} |" for name, what in rows.items()]
    table += [f"| before the first update | {found.share('before_update')} | {found.by_fault('before_update')} |"]
    table += [f"| within {n} steps of the fault | {found.within(n)} | |" for n in (3, 10, 100)]
    table += [f"| false alarms | {len(found.false_alarms)} of {len(found.healthy)} healthy runs, "
              f"below {found.false_alarm_bound:.1%} | |"]  # fmt: skip
    return table


def _bases(found: Score) -> list[str]:
    table = ["| base | runs | detected | cause | healthy | false alarms |", "|---|---|---|---|---|---|"]
    for base in sorted({each.verdict.base for each in found.judged} | {verdict.base for verdict in found.healthy}):
        part = Score(
            tuple(each for each in found.judged if each.verdict.base == base),
            tuple(verdict for verdict in found.healthy if verdict.base == base),
        )
        counts = f"{part.share('detected').count} | {part.share('top1').count}"
        table.append(f"| {base} | {len(part.judged)} | {counts} | {len(part.healthy)} | {len(part.false_alarms)} |")
    return table


def _baselines(rows: Sequence[Baseline]) -> list[str]:
    table = ["| rule of folklore | faulty runs | right cause | healthy runs |", "|---|---|---|---|"]
    for row in rows:
        shares = (f"{each.value:.0%}" if each.of else "–" for each in (row.detected, row.top1, row.false_alarms))
        table.append(f"| {row.name} | {' | '.join(shares)} |")
    return table


def _false_alarms(found: Score) -> list[str]:
    if not found.false_alarms:
        return ["No false alarm."]
    table = ["| false alarm | base | seed | said |", "|---|---|---|---|"]
    for verdict in found.false_alarms:
        said = ", ".join(f"{seen['cause']} ({seen['severity']}, step {seen['step']})" for seen in alarms(verdict))
        table.append(f"| {verdict.id} | {verdict.base} | {verdict.seed} | {said} |")
    return table


def _misses(found: Score) -> list[str]:
    if not found.misses():
        return ["Nothing was missed."]
    table = ["| not named | base | seed | cause | said | error of the loop |", "|---|---|---|---|---|---|"]
    for each in found.misses():
        verdict = each.verdict
        causes = " and ".join(accepted[0] for accepted in verdict.causes)
        said = ", ".join(dict.fromkeys(seen["cause"] for seen in alarms(verdict))) or "nothing"
        error = (verdict.error or "")[:60].replace("|", "/").replace("\n", " ")
        table.append(f"| {verdict.id} | {verdict.base} | {verdict.seed} | {causes} | {said} | {error} |")
    return table


def harm_table(verdicts: Sequence[Verdict]) -> str:
    """What each fault does to a run that nobody watches, as ratios to the healthy twin."""
    twins = {verdict.key: verdict for verdict in verdicts if verdict.kind == "twin"}
    lines = ["| fault | base | seed | loss | unlabelled loss | sampler | harmed |", "|---|---|---|---|---|---|---|"]
    for verdict in verdicts:
        twin = twins.get((verdict.twin or "", verdict.base, verdict.seed))
        if verdict.kind != "faulty" or twin is None:
            continue
        ratios = harm(verdict.metrics, twin.metrics)
        cells = [f"{ratios[name]:.3g}" if name in ratios else "–" for name in ("loss", "unlabelled loss", "sampler")]
        verdict_words = "yes" if is_harmed(ratios) else "no"
        lines.append(f"| {verdict.id} | {verdict.base} | {verdict.seed} | {' | '.join(cells)} | {verdict_words} |")
    return "\n".join(lines) + "\n"
