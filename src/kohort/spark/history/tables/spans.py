"""Spans of time from a log: from when to when a group had a member, or a member a partition.

Each record is a step that replaces the step before it in its sequence: a classic group's record contains all members
and their partitions, a record of a consumer group's member all its partitions. An item in consecutive steps of a
sequence is one span, up to the time of the first step without it. Everything here works on whole columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kohort.spark.history.decoding.columns import Numbers

OPEN = np.int64(-1)
"""The end of a span that lasts to the end of the log."""


class Steps(NamedTuple):
    """Rows in the order of their sequences, and for each sequence in the order of the log."""

    sequence: Numbers
    at: Numbers
    """Milliseconds."""

    @property
    def numbers(self) -> Numbers:
        """For each row its place in its sequence."""
        count = len(self.sequence)
        first = np.r_[True, self.sequence[1:] != self.sequence[:-1]] if count else np.zeros(0, bool)
        rows = np.arange(count)
        return rows - np.maximum.accumulate(np.where(first, rows, 0)) if count else rows

    @property
    def until(self) -> Numbers:
        """For each row the time of the next step of its sequence; OPEN for the last one."""
        ends = np.full(len(self.sequence), OPEN)
        same = self.sequence[1:] == self.sequence[:-1]
        ends[:-1][same] = self.at[1:][same]
        return ends


class Spans(NamedTuple):
    """Spans of items. `first` and `last` are the positions of a span's first and last item among the given items;
    `since` and `until` are milliseconds."""

    first: Numbers
    last: Numbers
    since: Numbers
    until: Numbers


def spans(steps: Steps, rows: Numbers, items: Numbers) -> Spans:
    """The spans of items, given for each item the row of its step. An item may be in a row several times."""
    if not len(rows):
        nothing = np.zeros(0, np.int64)
        return Spans(nothing, nothing, nothing, nothing)
    order = np.lexsort((rows, items, steps.sequence[rows]))
    rows, items = rows[order], items[order]
    number, sequence = steps.numbers[rows], steps.sequence[rows]
    goes_on = (sequence[1:] == sequence[:-1]) & (items[1:] == items[:-1]) & (number[1:] - number[:-1] <= 1)
    begins = np.flatnonzero(np.r_[True, ~goes_on])
    ends = np.r_[begins[1:], len(rows)] - 1
    return Spans(order[begins], order[ends], steps.at[rows[begins]], steps.until[rows[ends]])


def codes(*columns: Numbers) -> tuple[Numbers, Numbers]:
    """Numbers from 0 for the distinct rows of columns of numbers, ascending; and the first place of each."""
    if not len(columns[0]):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = np.lexsort(columns[::-1])
    new = np.zeros(len(order), bool)
    new[0] = True
    for column in columns:
        ordered = column[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    numbered = np.empty(len(order), np.int64)
    numbered[order] = np.cumsum(new) - 1
    return numbered, order[new]
