"""Which rules count: by flags, by [tool.safelight] of pyproject.toml, and by comments in a script."""

from __future__ import annotations

import re
import tokenize
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safelight.config.resolve import nearest
from safelight.diagnosis.doctor import Diagnosis, by_urgency
from safelight.diagnosis.rule import Rule
from safelight.diagnosis.rules import RULES
from safelight.errors import UsageError

PROJECT = "pyproject.toml"
KEYS = ("select", "ignore", "baseline")
COMMENT = re.compile(r"#\s*safelight\s*:\s*ignore\s*=\s*(.*)", re.IGNORECASE)
ENDS = re.compile(r"\s+-{1,2}\s|\s\(|#|:")  # a reason may stand behind the names
ALL = "all"


@dataclass(frozen=True, slots=True)
class Selection:
    """Names are codes (EMA001), families (EMA), causes (ema.too-long) or their beginnings (ema.)."""

    select: tuple[str, ...] = ()
    """Only these; all if there are none."""
    ignore: tuple[tuple[str, str], ...] = ()
    """(name, where it stands), on top of `select`."""
    baseline: Path | None = None

    def reason(self, rule: Rule) -> str | None:
        """Why a rule does not count; None if it does."""
        if self.select and not any(matches(name, rule) for name in self.select):
            return "not selected"
        where = next((where for name, where in self.ignore if matches(name, rule)), None)
        return None if where is None else f"ignored by {where}"


def matches(name: str, rule: Rule) -> bool:
    word = name.lower()
    if word == ALL:
        return True
    if "." in word:
        return rule.cause == word or (word.endswith(".") and rule.cause.startswith(word))
    return word in (rule.code.lower(), family_of(rule).lower(), rule.cause.partition(".")[0])


def family_of(rule: Rule) -> str:
    """EMA of EMA001."""
    return rule.code.rstrip("0123456789")


def names_in(words: Iterable[str], where: str) -> tuple[str, ...]:
    """The names of a list that commas or spaces part; an error for one that no rule has."""
    names = tuple(name for word in words for name in re.split(r"[,\s]+", word) if name)
    for name in names:
        if not any(matches(name, rule) for rule in RULES):
            all_names = sorted({each for rule in RULES for each in (rule.code, family_of(rule), rule.cause)})
            upper = nearest(name.upper(), all_names)
            near = nearest(name, all_names) if upper == "." else upper
            raise UsageError(
                f"{where} names {name!r}, which is no rule{near} Name a code (EMA001), a family (EMA) or a cause "
                "(ema.); `safelight explain` lists them."
            )
    return names


def load_selection(
    select: Sequence[str] = (), ignore: Sequence[str] = (), script: Path | None = None, start: Path | None = None
) -> Selection:
    """Flags, then the table of the nearest pyproject.toml from `start` upwards (the folder of the script, or that we
    are in), then comments in the script. --select replaces that of the table; what is ignored adds up."""
    begin = start or (Path.cwd() if script is None else script.resolve().parent)
    project, table = _table_above(begin)
    named = f"[tool.safelight] in {project}"
    chosen = names_in(select, "--select") or names_in(_words(table, "select", named), named)
    ignored = [(name, "--ignore") for name in names_in(ignore, "--ignore")]
    ignored += [(name, named) for name in names_in(_words(table, "ignore", named), named)]
    if script is not None:
        where = f"a comment in {script.name}"
        ignored += [(name, where) for name in names_in(comments_in(script), where)]
    baseline = _words(table, "baseline", named)
    return Selection(chosen, tuple(ignored), project.parent / baseline[0] if baseline and project else None)


def _table_above(folder: Path) -> tuple[Path | None, dict[str, Any]]:
    folder = folder.resolve()
    for place in (folder, *folder.parents):
        path = place / PROJECT
        if not path.is_file():
            continue
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise UsageError(f"{path} cannot be read: {error}") from error
        tools = found.get("tool")
        table = tools.get("safelight") if isinstance(tools, dict) else None
        if isinstance(table, dict):
            return path, _checked(table, path)
    return None, {}


def _checked(table: dict[str, Any], path: Path) -> dict[str, Any]:
    for key in table:
        if key not in KEYS:
            raise UsageError(
                f"[tool.safelight] in {path} has no key {key!r}{nearest(key, KEYS)} It has {', '.join(KEYS)}."
            )
    return table


def _words(table: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = table.get(key, ())
    words = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list | tuple) else None
    if words is None or not all(isinstance(word, str) for word in words):
        raise UsageError(f"{key} of {where} should be a text or a list of texts; it is {value!r}.")
    return words


def comments_in(script: Path) -> tuple[str, ...]:
    """What stands behind `# safelight: ignore=` in the comments of a Python file, not in its texts."""
    found: list[str] = []
    try:
        with tokenize.open(script) as file:
            for token in tokenize.generate_tokens(file.readline):
                if token.type == tokenize.COMMENT and (match := COMMENT.search(token.string)):
                    found.append(ENDS.split(match[1], maxsplit=1)[0])
    except (OSError, SyntaxError, UnicodeDecodeError, tokenize.TokenError):
        return tuple(found)  # Python says what is wrong with it
    return tuple(found)


def apply(diagnosis: Diagnosis, selection: Selection) -> Diagnosis:
    """Without the findings of rules that do not count; these are not among those that looked."""
    reasons = {rule.code: reason for rule in RULES if (reason := selection.reason(rule)) is not None}
    if not reasons:
        return diagnosis
    covered = diagnosis.coverage
    missing = {code: names for code, names in covered.missing.items() if code not in reasons}
    arguments = {code: names for code, names in covered.arguments.items() if code not in reasons}
    unable = {**{code: why for code, why in covered.unable.items() if code not in reasons}, **reasons}
    looked = covered.rules - len(missing) - len(unable)
    kept = [finding for finding in diagnosis.findings if finding.code not in reasons]
    others = [each for each in diagnosis.explained if each.finding.code not in reasons]
    left = {finding.code for finding in (*kept, *(each.finding for each in others))}
    # What only a rule that does not count explains is reported itself: a NaN is not silent with its cause.
    kept += [each.finding for each in others if not each.by & left]
    explained = tuple(each for each in others if each.by & left)
    counted = covered._replace(looked=looked, missing=missing, arguments=arguments, unable=unable)
    return replace(diagnosis, findings=by_urgency(kept), coverage=counted, explained=explained)
