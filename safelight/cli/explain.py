"""safelight explain"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from safelight.cli.flags import options
from safelight.errors import UsageError

if TYPE_CHECKING:
    from safelight.diagnosis.rule import Rule
    from safelight.diagnosis.symptoms import Symptom


@dataclass(frozen=True, kw_only=True)
class Command:
    """Explain a finding, or list the findings behind a symptom such as nan, plateau, blurry or "mode collapse"."""

    code: Annotated[tuple[str, ...], Positional, arg(metavar="[CODE|SYMPTOM]", help_behavior_hint="")] = ()
    """A code such as LOS001, a cause such as loss.nonfinite, or a symptom; without one, all findings are listed."""
    json: options.Json = False

    def run_command(self) -> None:
        from safelight.diagnosis.rules import RULES

        found = self._look_up() if self.code else None
        if found is None:
            print(_json(rules=RULES) if self.json else _list([*RULES]))
        elif not isinstance(found, list):
            print(_json(rules=[found]) if self.json else _page(found))
        elif self.json:
            print(_json(symptoms=found, rules={rule.code: rule for each in found for rule in each.rules}.values()))
        else:
            print("\n\n".join(map(_symptom_page, found)))
            print("\n`safelight doctor RUN` says which of them it is; `safelight explain CODE` explains one.")

    def _look_up(self) -> Rule | list[Symptom]:
        from safelight.diagnosis.doctor import look_up
        from safelight.handbook import elsewhere

        word = " ".join(self.code)
        try:
            return look_up(word)
        except UsageError:
            if not (near := elsewhere(word, besides="explain")):
                raise
            raise UsageError(
                f"No finding or symptom is called {word!r}.{near} `safelight explain` lists all."
            ) from None


def _json(**lists: Iterable[Rule | Symptom]) -> str:
    return json.dumps({name: [each.to_json() for each in found] for name, found in lists.items()}, indent=1)


def _list(rules: list[Rule], indent: str = "") -> str:
    width = max((len(rule.cause) for rule in rules), default=0)
    return "\n".join(f"{indent}{rule.code}  {rule.cause:<{width}}  {rule.title}" for rule in rules)


def _page(rule: Rule) -> str:
    sections = {"What it is": rule.what, "Why it is bad": rule.why, "Look-alikes": rule.similar}
    sections |= {"Not seen": rule.limits, "What to do": rule.fix}
    return f"{rule.code}  {rule.cause}: {rule.title}\n\n" + "\n".join(f"{k}. {text}" for k, text in sections.items())


def _symptom_page(symptom: Symptom) -> str:
    return (
        f"{symptom.name}\n\nWhere it shows. {symptom.shows}\nWhat to do. {symptom.do}\nFindings that may be behind it, "
        f"the most likely first:\n{_list(symptom.rules, '  ')}"
    )
