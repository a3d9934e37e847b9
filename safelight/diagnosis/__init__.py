"""What is wrong with a run and why: rules that read the record, and nothing else of it."""

from __future__ import annotations

from safelight.diagnosis.doctor import diagnose as diagnose
from safelight.diagnosis.finding import Finding as Finding
from safelight.diagnosis.finding import Fix as Fix
