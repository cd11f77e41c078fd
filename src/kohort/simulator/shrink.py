"""Shrink a failing run: fewer actors, fewer faults, less time, and the same promise still broken.

Each candidate is a plan that runs from the start. Actors draw from generators of their own, so removing one does not
change the others until an event reaches them differently.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import islice

from kohort.simulator.plan import Plan
from kohort.simulator.simulate import run_plan

TRIES = 400
"""Limit on the number of runs."""


def shrink(plan: Plan, check: str) -> Plan:
    """The smallest plan found that still breaks `check`."""
    tries = TRIES
    found = True
    while found and tries > 0:
        found, at = False, 0
        while tries > 0 and (candidate := next(islice(_smaller(plan), at, None), None)) is not None:
            tries -= 1
            violation = run_plan(candidate).violation
            if violation is not None and violation.check == check:
                plan, found = candidate, True  # `at` is now this change again, or the next one
            else:
                at += 1
    return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    if plan.duration_ms > 1_000:
        yield replace(plan, duration_ms=plan.duration_ms // 2)
    for fault in fields(plan.faults):
        if getattr(plan.faults, fault.name):
            yield replace(plan, faults=replace(plan.faults, **{fault.name: 0}))
    for index in range(len(plan.cast)):
        yield replace(plan, cast=plan.cast[:index] + plan.cast[index + 1 :])
    if plan.brokers > 1 and not plan.faults.move_every_ms:
        yield replace(plan, brokers=1)
    if plan.duration_ms > 1_000:
        yield replace(plan, duration_ms=plan.duration_ms * 4 // 5)
