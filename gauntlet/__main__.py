"""The gauntlet: faults, twins and healthy recipes, and how they were judged.

python -m gauntlet --fast                          # the subset of the tests, a minute
python -m gauntlet --base mixture --only never-step
python -m gauntlet --seeds 1 --healthy 3 --jobs 2 -o gauntlet/results
python -m gauntlet --again DIR                     # the rules of today on runs that --keep DIR has kept
python -m gauntlet --harm                          # what each fault does to an unwatched run
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from gauntlet.archive import judge_again
from gauntlet.healthy import RECIPES
from gauntlet.options import ALL, BASES
from gauntlet.plan import everything, fast, faulty, healthy, with_twins_of_sick
from gauntlet.pool import carry_out_all
from gauntlet.report import harm_table, to_markdown, write, write_floor
from gauntlet.scenario import Scenario


def main() -> None:
    given = arguments()
    chosen = choose(given)
    if given.list:
        print("\n".join(f"{each.base} {each.kind} {each.id} #{each.seed}" for each in chosen))
        return
    command = " ".join(["python -m gauntlet", *sys.argv[1:]])
    say = print if given.loud else None
    if given.again is not None:
        verdicts = judge_again(given.again)
    else:
        verdicts = carry_out_all(chosen, jobs=given.jobs, watched=not given.harm, archive=given.keep, say=say)
    if given.harm:
        table = harm_table(verdicts)
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "harm.md").write_text(table)
        print(table)
        return
    if given.fast:
        write_floor(verdicts, given.out / "fast.json", "python -m gauntlet --fast")
    else:
        write(verdicts, given.out, command=command)
    print(to_markdown(verdicts, command))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", choices=ALL, action="append", help="only this base; may be repeated")
    parser.add_argument("--only", nargs="+", default=[], help="ids of faults, scenarios or recipes")
    parser.add_argument("--seeds", type=int, default=1, help="of faulty runs; 0: none")
    parser.add_argument("--healthy", type=int, default=1, help="seeds of healthy recipes; 0: none")
    parser.add_argument("--first-seed", type=int, default=0, help="rules were written while looking at seed 0")
    parser.add_argument("--plain-doses", action="store_true", help="no late, double and half-told faults")
    parser.add_argument("--fast", action="store_true", help="the subset of the tests")
    parser.add_argument("--harm", action="store_true", help="train without a watch and measure the models")
    parser.add_argument("--list", action="store_true", help="say which runs there would be")
    parser.add_argument("--loud", action="store_true", help="say each verdict when it is known")
    parser.add_argument("--steps", type=int, help="of every run, to try it")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the record of every run there")
    parser.add_argument("--again", type=Path, metavar="DIR", help="train nothing: judge the runs that were kept there")
    parser.add_argument("-o", "--out", type=Path, default=Path("gauntlet/results"))
    given = parser.parse_args()
    known = {*everything(ALL), *RECIPES, *(each.id for each in faulty(ALL, (0,)))}
    if strangers := [name for name in given.only if name not in known]:
        parser.error(f"there is no fault or recipe {strangers[0]!r}; --list tells all")
    return given


def choose(given: argparse.Namespace) -> list[Scenario]:
    if given.fast:
        return with_twins_of_sick(fast())
    bases = given.base or BASES
    short = () if given.steps is None else (("steps", given.steps),)
    first = given.first_seed
    sick = faulty(bases, range(first, first + given.seeds), given.only, variants=not given.plain_doses)
    well = [] if given.harm else healthy(bases, range(first, first + given.healthy), given.only)
    return with_twins_of_sick([replace(each, changes=(*each.changes, *short)) for each in [*sick, *well]])


if __name__ == "__main__":
    main()
