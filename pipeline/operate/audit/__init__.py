"""Named checks of what is indexed against what should be, and a mend for each.

``run`` looks, ``mend`` asks the owners for what was found (invariant 1). The command line, Dagster and the control
process call the same functions.
"""

from pipeline.operate.audit.checks import CHECKS, audit, examine, names
from pipeline.operate.audit.mending import Mended, mend, mend_all
from pipeline.operate.audit.model import AuditReport, CheckResult, Finding

__all__ = [
    "CHECKS",
    "AuditReport",
    "CheckResult",
    "Finding",
    "Mended",
    "audit",
    "examine",
    "mend",
    "mend_all",
    "names",
]
