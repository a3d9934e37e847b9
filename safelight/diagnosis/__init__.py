"""What is wrong with a run and why: rules that read only the record."""

from __future__ import annotations

from safelight.diagnosis.doctor import Diagnosis as Diagnosis
from safelight.diagnosis.doctor import diagnose as diagnose
from safelight.diagnosis.doctor import diagnose_log as diagnose_log
from safelight.diagnosis.doctor import diagnose_run as diagnose_run
from safelight.diagnosis.doctor import diagnose_trial as diagnose_trial
from safelight.diagnosis.doctor import is_foreign as is_foreign
from safelight.diagnosis.finding import Finding as Finding
