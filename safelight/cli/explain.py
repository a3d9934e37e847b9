"""safelight explain"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from safelight.cli import options


@dataclass(frozen=True, kw_only=True)
class Command:
    """Explain a finding: what is it, why is it bad, how does it differ from similar findings, what fixes it?"""

    code: Annotated[str | None, Positional, arg(metavar="[CODE]", help_behavior_hint="")] = None
    """A code such as LOS001, or a cause such as loss.nonfinite; without one, all are listed."""
    json: options.Json = False

    def run_command(self) -> None:
        from safelight.diagnosis.doctor import explain
        from safelight.diagnosis.rules import RULES

        rules = [*RULES] if self.code is None else [explain(self.code)]
        if self.json:
            print(json.dumps({"rules": [rule.to_json() for rule in rules]}, indent=1))
        elif self.code is None:
            width = max(len(rule.cause) for rule in RULES)
            print("\n".join(f"{rule.code}  {rule.cause:<{width}}  {rule.title}" for rule in RULES))
        else:
            [rule] = rules
            print(f"{rule.code}  {rule.cause}: {rule.title}\n")
            sections = {"What it is": rule.what, "Why it is bad": rule.why, "Look-alikes": rule.similar}
            for name, text in (sections | {"Not seen": rule.limits, "What to do": rule.fix}).items():
                print(f"{name}. {text}")
