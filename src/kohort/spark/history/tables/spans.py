"""Spans of time out of a log: who was there, and who had what, from when until when.

A log says at each of its steps all that is so from then on: a classic group's record names all members and all that
they have; a consumer group's member has records of its own. So the steps are put in sequences (a group, or a member),
and what stands in consecutive steps of a sequence is one span: from the time of the first to the time of the step that
has it no more. Nothing here loops over records.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kohort.spark.history.decoding.columns import Numbers

OPEN = np.int64(-1)
"""The end of a span that has not ended."""


class Steps(NamedTuple):
    """Rows in order of their sequences, and in order of the log inside of each."""

    sequence: Numbers
    at: Numbers
    """Milliseconds."""

    @property
    def numbers(self) -> Numbers:
        """Of each row its place in its sequence."""
        count = len(self.sequence)
        first = np.r_[True, self.sequence[1:] != self.sequence[:-1]] if count else np.zeros(0, bool)
        rows = np.arange(count)
        return rows - np.maximum.accumulate(np.where(first, rows, 0)) if count else rows

    @property
    def until(self) -> Numbers:
        """When the next step of the sequence was; OPEN for the last one."""
        ends = np.full(len(self.sequence), OPEN)
        same = self.sequence[1:] == self.sequence[:-1]
        ends[:-1][same] = self.at[1:][same]
        return ends


class Spans(NamedTuple):
    """Spans of items. `first` and `last` are the places of the items, among those given, with which they begin and
    end; `since` and `until` are milliseconds."""

    first: Numbers
    last: Numbers
    since: Numbers
    until: Numbers


def spans(steps: Steps, rows: Numbers, items: Numbers) -> Spans:
    """The spans of items, which stand in `rows` of the steps. An item may stand in a row once or several times."""
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
    """Small numbers for the distinct rows of columns of numbers, in ascending order; and where each is found first."""
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
