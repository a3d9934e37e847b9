"""A fixture for pytest: `safelight_check(model, process, batch)` fails a test where the debugger finds an error.

pytest imports this in every test suite of an environment that has Safelight, so nothing else is imported here, and
nothing is changed but that the fixture is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from safelight.watching.check_report import CheckReport


@pytest.fixture
def safelight_check(request: pytest.FixtureRequest) -> Callable[..., CheckReport]:
    """`safelight.check`, which raises an AssertionError with its report where an error is found.

    Takes the arguments of `safelight.check`, and `select` and `ignore`: names of rules, as on the command line.
    [tool.safelight] of pyproject.toml and comments in the test file count as well. `warnings=True` fails on warnings
    too. Returns the report."""

    def check(
        model: Any,
        process: Any = None,
        batch: Any = None,
        *,
        select: Sequence[str] = (),
        ignore: Sequence[str] = (),
        warnings: bool = False,
        **arguments: Any,
    ) -> CheckReport:
        __tracebackhide__ = True
        from safelight.diagnosis.linting import selection
        from safelight.watching.debugger import check as examine

        names = [(each,) if isinstance(each, str) else tuple(each) for each in (select, ignore)]
        chosen = selection.load_selection(names[0], names[1], script=request.path)
        report = examine(model, process, batch, **{"say": None, **arguments})
        report = report.narrowed(selection.apply(report.diagnosis, chosen))
        fails = ("error", "warning") if warnings else ("error",)
        if any(finding.severity in fails for finding in report.findings):
            raise AssertionError(str(report))
        return report

    return check
