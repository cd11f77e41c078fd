"""The form of a record in the lake: a row as it is, a row with the columns of its JSON value, or a dead letter.

A row shape turns the source's rows into marked rows, which show whether they are dead letters, and those into the two
tables. Spark's own parser parses the JSON, once and without Python. It would accept two kinds of bad values:

- It ignores text after the first JSON value. So the value is parsed as a field of an enclosing object, followed by
  another field; a third field would come from the value.
- It replaces bytes that are not UTF-8. So the bytes are checked first.

Dead letters are values that are not UTF-8, not JSON or not an object, or (typing=strict) that have a field of another
type. A tombstone becomes a row with null columns and a true `_tombstone`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Literal

from kohort.spark.lake.json_schema import Type, column_names, describe, renamed

Typing = Literal["strict", "permissive"]

RECORD = ("key", "topic", "partition", "offset", "timestamp", "timestampType")
DATED = ("date", "hour")
TOMBSTONE, REST, RAW = "_tombstone", "_rest", "_raw"

MICROS_PER_HOUR = 3_600_000_000
MARKS = ("__text", "__parsed", "__misfit", "__whole")
WRAPPED, BEHIND, CORRUPT = "__value", "__behind", "__corrupt"
OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": CORRUPT,
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
    "timeZone": "UTC",
}


def dated(frame: Any) -> Any:
    """Add `date` and `hour` of the timestamp to the source's rows, in UTC whatever the session's time zone."""
    return frame.selectExpr(
        "*",
        f"date_add(DATE'1970-01-01', CAST(floor(unix_micros(timestamp) / {24 * MICROS_PER_HOUR}D) AS INT)) AS date",
        f"CAST(floor(pmod(unix_micros(timestamp), {24 * MICROS_PER_HOUR}) / {MICROS_PER_HOUR}D) AS INT) AS hour",
    )


class RawShape:
    """Rows as the source gives them, without dead letters."""

    makes_dead_letters = False

    def __init__(self, partition_by: Sequence[str]) -> None:
        self._drop = set(DATED) - set(partition_by)

    def mark(self, frame: Any) -> Any:
        return dated(frame)

    def is_dead(self) -> Any:
        from pyspark.sql import functions

        return functions.lit(False)

    def rows(self, marked: Any) -> Any:
        return marked.drop(*self._drop)

    def dead_letters(self, marked: Any) -> Any:
        raise AssertionError("raw rows have no dead letters")


@dataclass(frozen=True, slots=True)
class JsonSettings:
    """How JSON values are read. Kept beside the checkpoint, so that a repeated batch is read in the same way."""

    schema: Type
    """The schema of the value: a struct in Spark's JSON form."""
    typing: Typing = "strict"
    keep_rest: bool = True
    keep_value: bool = False


class JsonShape:
    """Rows with a column for each field of the value, a JSON object."""

    makes_dead_letters = True

    def __init__(self, settings: JsonSettings, partition_by: Sequence[str], *, headers: bool) -> None:
        self._settings = settings
        self._record = [*RECORD, *(["headers"] if headers else []), *(["value"] if settings.keep_value else [])]
        self._partition_by = list(partition_by)
        self._fields = [field["name"] for field in settings.schema["fields"]]
        self._taken = [*RECORD, "headers", "value", *DATED, TOMBSTONE, REST, RAW, *MARKS]
        self.columns = dict(zip(self._fields, column_names(self._fields, self._taken), strict=True))
        """The column of each field."""

    def mark(self, frame: Any) -> Any:
        from pyspark.sql import functions as f
        from pyspark.sql.types import StructType

        wrapper = {
            "type": "struct",
            "fields": [
                {"name": WRAPPED, "type": self._settings.schema, "nullable": True, "metadata": {}},
                {"name": BEHIND, "type": "integer", "nullable": True, "metadata": {}},
                {"name": CORRUPT, "type": "string", "nullable": True, "metadata": {}},
            ],
        }
        text = f.col("value").cast("string")
        wrapped = f.concat(f.lit(f'{{"{WRAPPED}":'), text, f.lit(f',"{BEHIND}":1}}'))
        columns = StructType.fromJson(renamed(self._settings.schema, self._taken))
        parsed = f.from_json(wrapped, StructType.fromJson(wrapper), OPTIONS)
        return (
            dated(frame)
            .withColumn("__text", text)
            .withColumn("__json", parsed)
            .withColumn("__parsed", f.col(f"__json.{WRAPPED}").cast(columns))
            .withColumn("__misfit", f.col(f"__json.{CORRUPT}").isNotNull())
            .withColumn("__whole", f.col(f"__json.{BEHIND}").isNotNull() & _alone(text, wrapped))
            .drop("__json")
        )

    def is_dead(self) -> Any:
        """A condition on marked rows; never null."""
        from pyspark.sql import functions as f

        readable = f.is_valid_utf8("__text") & f.col("__whole") & f.col("__parsed").isNotNull()
        if self._settings.typing == "strict":
            readable = readable & ~f.col("__misfit")
        infinite = _infinite(f.col("__parsed"), renamed(self._settings.schema, self._taken))
        if infinite is not None:
            readable = readable & ~f.coalesce(infinite, f.lit(False))
        return f.col("value").isNotNull() & ~f.coalesce(readable, f.lit(False))

    def rows(self, marked: Any) -> Any:
        from pyspark.sql import functions as f

        columns = [f.col(name) for name in self._record]
        columns += [f.col(name) for name in DATED if name in self._partition_by]
        parsed = f.col("__parsed")
        columns += [parsed.getField(name).alias(name) for name in self.columns.values()]
        columns.append(f.col("value").isNull().alias(TOMBSTONE))
        if self._settings.keep_rest:
            columns.append(self._rest().alias(REST))
        if self._settings.typing == "permissive":
            columns.append(f.when(f.col("__misfit"), f.col("__text")).alias(RAW))
        return marked.filter(~self.is_dead()).select(*columns)

    def _rest(self) -> Any:
        """The fields without a column, as a JSON object; null if there are none, which the names show cheaply."""
        from pyspark.sql import functions as f

        text = f.col("__text")
        known = f.array(*[f.lit(name) for name in self._fields])
        further = f.size(f.array_except(f.json_object_keys(text), known)) > 0
        fields = f.from_json(text, "map<string,variant>", {"allowSingleQuotes": "false"})
        return f.when(further, f.to_json(f.map_filter(fields, lambda name, _: ~f.array_contains(known, name))))

    def dead_letters(self, marked: Any) -> Any:
        columns = ["topic", "partition", "offset", "timestamp", "timestampType", "key", "value"]
        columns += [name for name in ("headers",) if name in self._record]
        columns += [name for name in DATED if name in self._partition_by]
        return marked.filter(self.is_dead()).select(*columns, self._reason().alias("reason"))

    def _reason(self) -> Any:
        from pyspark.sql import functions as f

        text = f.col("__text")
        start = f.substring(f.ltrim(text), 1, 1)
        is_json = f.try_parse_json(text).isNotNull()
        kind = f.when(start == "[", "an array").when(start == '"', "a string").when(start == "n", "null")
        return (
            f.when(~f.is_valid_utf8(text), f.lit("not UTF-8"))
            .when(f.length(f.regexp_replace(text, r"[ \t\r\n]", "")) == 0, f.lit("empty"))
            .when(
                (start != "{") & is_json, f.concat(f.lit("not a JSON object but "), f.coalesce(kind, f.lit("a value")))
            )
            .when(f.col("__parsed").isNull() | ~f.col("__whole"), f.lit("not JSON"))
            .otherwise(self._misfits())
        )

    def _misfits(self) -> Any:
        """The reason for values of another type: the fields by name and type."""
        from pyspark.sql import functions as f

        given = f.from_json(f.col("__text"), "map<string,string>")
        fitting = renamed(self._settings.schema, self._taken)["fields"]
        misfits = []
        for field, column in zip(self._settings.schema["fields"], fitting, strict=True):
            parsed = f.col("__parsed").getField(column["name"])
            wrong = parsed.isNull() & given.getItem(field["name"]).isNotNull()
            infinite = _infinite(parsed, column["type"])
            if infinite is not None:
                wrong = wrong | f.coalesce(infinite, f.lit(False))
            misfits.append(f.when(wrong, f.lit(f"{field['name']} ({describe(field['type'])})")))
        named = f.array_join(f.array(*misfits), ", ") if misfits else f.lit("")
        return f.concat(f.lit("does not fit the schema: "), f.when(named != "", named).otherwise("a nested field"))


RowShape = RawShape | JsonShape


def _alone(text: Any, wrapped: Any) -> Any:
    """True if the value added no field to the enclosing object. Never null."""
    from pyspark.sql import functions as f

    flat = f.startswith(text, f.lit("{")) & (f.locate("}", text) == f.length(text))
    ours = f.json_object_keys(wrapped) == f.array(f.lit(WRAPPED), f.lit(BEHIND))
    # If the only closing brace is at the end, it closes the object that starts the value: no need to list the fields.
    return f.when(flat, f.lit(True)).otherwise(f.coalesce(ours, f.lit(False)))


def _infinite(column: Any, kind: Type) -> Any:
    """True if a value contains a double beyond the largest one; None if the type has no doubles."""
    from pyspark.sql import functions as f

    if kind in ("double", "float"):
        return f.abs(column) == f.lit(float("inf"))
    if not isinstance(kind, dict):
        return None
    if kind["type"] == "struct":
        inner = [_infinite(column.getField(field["name"]), field["type"]) for field in kind["fields"]]
        found = [f.coalesce(part, f.lit(False)) for part in inner if part is not None]
        return reduce(or_, found) if found else None
    if kind["type"] == "array" and _infinite(f.lit(0.0), kind["elementType"]) is not None:
        return f.exists(column, lambda element: f.coalesce(_infinite(element, kind["elementType"]), f.lit(False)))
    if kind["type"] == "map" and _infinite(f.lit(0.0), kind["valueType"]) is not None:
        return f.exists(
            f.map_values(column), lambda element: f.coalesce(_infinite(element, kind["valueType"]), f.lit(False))
        )
    return None
