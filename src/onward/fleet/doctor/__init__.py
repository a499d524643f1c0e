"""Looks at an installation and at everything that must hold in its database, and can mend some.

What is looked at is data: `machine`, `server` and `invariants` are tables of checks, each with the
sentence that must hold, how it is asked, what to do if it does not, and how it is repaired.
"""

from onward.fleet.doctor.check import Check, Finding, Found, Needs, Patient, Repair, State
from onward.fleet.doctor.examination import examine, repair
from onward.fleet.doctor.invariants import INVARIANTS
from onward.fleet.doctor.machine import MACHINE
from onward.fleet.doctor.server import SERVER

__all__ = [
    "INVARIANTS",
    "MACHINE",
    "SERVER",
    "Check",
    "Finding",
    "Found",
    "Needs",
    "Patient",
    "Repair",
    "State",
    "examine",
    "repair",
]
