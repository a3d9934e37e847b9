"""What is wrong with a run and why: rules that read only the record."""

from __future__ import annotations

from safelight.diagnosis.convergence import Progress
from safelight.diagnosis.doctor import Diagnosis, diagnose, diagnose_log, diagnose_run, diagnose_trial, is_foreign
from safelight.diagnosis.finding import Finding

__all__ = [
    "Diagnosis",
    "Finding",
    "Progress",
    "diagnose",
    "diagnose_log",
    "diagnose_run",
    "diagnose_trial",
    "is_foreign",
]
