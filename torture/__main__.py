"""The torture suite: what a run must survive, done to it many times from one seed.

python -m torture --quick                          # a little of everything, some minutes
python -m torture --jobs 2 -o torture/results      # all of it, well under an hour on two cores
python -m torture --only kills --pieces 0:5 -o torture/results    # a part, added to the table
python -m torture --only kills --seed 0 --cases 37:38             # one case again, as a failure prints it
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from torture.pieces import PendingReading, cut, run_pieces
from torture.report import Found, add, render
from torture.scenario import Outcome, Scenario, is_as_wanted, merge
from torture.scenarios import all_scenarios


def main() -> int:
    given = arguments()
    torch.set_num_threads(1)  # before any operation: OpenMP's threads do not survive a fork
    scenarios = all_scenarios()
    if given.list:
        print("\n".join(f"{each.name}: {each.deed}" for each in scenarios.values()))
        return 0
    chosen = {name: each for name, each in scenarios.items() if not given.only or name in given.only}
    found: Found = {}
    for piece, outcome in run_pieces(choose(given, chosen), jobs=given.jobs):
        name, cases = piece.scenario.name, f"{piece.cases.start}:{piece.cases.stop}"
        found.setdefault(name, {})[cases] = outcome
        tell(piece, outcome)
        if given.out is not None:
            add(given.out, name, cases, outcome, scenarios, remembered(given))
    print(render(found, scenarios, remembered(given)))
    whole = {name: merge(list(pieces.values()), alike=chosen[name].alike) for name, pieces in found.items()}
    return 0 if all(is_as_wanted(chosen[name], each) for name, each in whole.items()) else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a little of everything")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these scenarios; --list tells all")
    parser.add_argument("--seed", type=int, default=0, help="of every case")
    parser.add_argument("--cases", type=span, metavar="A:B", help="only these cases of the scenario")
    parser.add_argument("--pieces", type=span, metavar="A:B", help="only these pieces of each scenario")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="the scenarios and what each does")
    parser.add_argument("-o", "--out", type=Path, help="where the table and the pieces that it is made of are kept")
    given = parser.parse_args()
    if strangers := [name for name in given.only if name not in all_scenarios()]:
        parser.error(f"there is no scenario {strangers[0]!r}; --list tells all")
    if given.cases is not None and (len(given.only) != 1 or given.out is not None):
        parser.error("--cases goes with one scenario in --only and without -o: it is for trying again")
    return given


def span(words: str) -> range:
    start, _, stop = words.partition(":")
    return range(int(start), int(stop) if stop else int(start) + 1)


def choose(given: argparse.Namespace, chosen: dict[str, Scenario]) -> list[PendingReading]:
    if given.cases is not None:
        return [PendingReading(each, given.seed, 0, given.cases) for each in chosen.values()]
    pieces = [piece for each in chosen.values() for piece in cut(each, given.seed, quick=given.quick)]
    return [piece for piece in pieces if given.pieces is None or piece.number in given.pieces]


def tell(piece: PendingReading, outcome: Outcome) -> None:
    name, unit = piece.scenario.name, piece.scenario.unit
    found = f"{len(outcome.lost)} found out" if piece.scenario.is_control else f"{len(outcome.lost)} lost"
    cases = f"{piece.cases.start}:{piece.cases.stop}"
    print(f"{name} {cases}: {outcome.count:,} {unit}, {found}, {outcome.seconds:.1f} s", flush=True)
    for case, words in [] if piece.scenario.is_control else outcome.lost[:5]:
        where = f"{case}:{case + 1}" if case >= 0 else cases
        print(f"  python -m torture --only '{name}' --seed {piece.seed} --cases {where}  # {words}", flush=True)


def remembered(given: argparse.Namespace) -> str:
    """The command that makes the whole table; it may have been carried out in parts."""
    return " ".join(["python -m torture", *(["--quick"] if given.quick else []), f"--seed {given.seed}"])


if __name__ == "__main__":
    sys.exit(main())
