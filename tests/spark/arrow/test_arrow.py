"""The Arrow decoders, compiled and plain, against the reference of kohort.wire: good batches, and damaged ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pytest
from arrow_cases import expected, filled, is_refused, opened
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohort.spark.arrow import columns as columns_module
from kohort.spark.arrow import decoder as decoder_module
from kohort.spark.arrow.columns import Filler, timestamps
from kohort.spark.arrow.compiled import CompiledFiller
from kohort.spark.arrow.decoder import DECODER_VARIABLE, WORTH_IT, decoder, filler
from kohort.spark.arrow.plain import PlainFiller
from kohort.wire.batches import CorruptBatch, NewRecord, decode_records, encode_batch, read_header, set_log_append_time

both = pytest.mark.parametrize("filler_class", [CompiledFiller, PlainFiller])
FillerClass = Callable[[bool], Filler]

some_bytes = st.none() | st.binary(max_size=80) | st.integers(100, 40_000).map(lambda size: b"x" * size)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
times = st.integers(-1, 2**50) | st.sampled_from((2**63 - 1, -(2**63)))
records = st.builds(NewRecord, some_bytes, some_bytes, times, st.just(()) | headers)


@st.composite
def batches(draw: st.DrawFn) -> list[bytes]:
    """A log: batches of every kind in sequence, with gaps in and between them."""
    log, offset = [], draw(st.integers(0, 2**40))
    for content in draw(st.lists(st.lists(records, min_size=1, max_size=12), min_size=1, max_size=5)):
        deltas = sorted(draw(st.sets(st.integers(0, 40), min_size=len(content), max_size=len(content))))
        batch = encode_batch(content, base_offset=offset, offsets=deltas, compression=draw(st.integers(0, 4)))
        if draw(st.booleans()):
            batch = set_log_append_time(batch, draw(st.integers(0, 2**42)))
        log.append(batch)
        offset += deltas[-1] + 1 + draw(st.integers(0, 3))
    return log


@both
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(log=batches(), cuts=st.tuples(st.integers(0, 60), st.integers(0, 60)), with_headers=st.booleans())
@pytest.mark.parametrize("limits", [(32_768, 8 << 20), (3, 100)])
def test_rows_are_those_of_the_reference(
    filler_class: FillerClass,
    limits: tuple[int, int],
    log: list[bytes],
    cuts: tuple[int, int],
    with_headers: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(columns_module, "ROWS", limits[0])
    monkeypatch.setattr(columns_module, "BYTES", limits[1])
    first, last = read_header(log[0]).base_offset + cuts[0], read_header(log[-1]).last_offset + 1 - cuts[1]
    wanted = [
        expected(header, decode_records(batch), first, last, with_headers)
        for batch, header in ((batch, read_header(batch)) for batch in log)
    ]
    columns = filled(filler_class(with_headers), [opened(batch) for batch in log], first, last)
    assert list(chain(*columns)) == list(chain(*wanted))
    for rows in columns:
        size = sum(len(row.key or b"") + len(row.value or b"") for row in rows)
        assert len(rows) <= limits[0]
        assert size <= limits[1] or len(rows) == 1


@both
@pytest.mark.parametrize("with_headers", [False, True])
def test_damage_is_found_or_harmless(filler_class: FillerClass, with_headers: bool) -> None:
    """For any bytes, both decoders find damage where the reference does, and otherwise read the same."""
    found = sum(is_refused(filler_class(with_headers), seed, with_headers) for seed in range(1_500))
    assert 500 < found < 1_450


@pytest.mark.timeout(300)
def test_compiled_code_stays_inside_its_buffers() -> None:
    """Every buffer ends at the end of readable memory: reading one byte more would end the process, as the first run
    shows."""
    script = Path(__file__).with_name("arrow_guard.py")
    for words, code in ((["beyond"], -11), (["0", "6000"], 0)):
        done = subprocess.run([sys.executable, str(script), *words], capture_output=True, text=True, timeout=280)
        assert done.returncode == code, done.stdout + done.stderr
    assert done.stdout.startswith("6000 damaged batches"), done.stdout


@both
def test_large_records_and_many_headers_get_room(filler_class: FillerClass) -> None:
    large = NewRecord(b"k" * 100, b"v" * (9 << 20), 1, (("h", b"w" * 100), ("none", None)))
    new = [NewRecord(b"a", b"b", 1), large, NewRecord(None, None, 2)]
    log = [opened(encode_batch(new, compression=codec)) for codec in range(5)]
    columns = filled(filler_class(True), log, 0, 10)
    assert [len(rows) for rows in columns] == [1, 1, 2, 1, 2, 1, 2, 1, 2, 1, 1]
    assert columns[1][0].value == large.value
    assert columns[1][0].headers == list(large.headers)
    many = NewRecord(None, None, 1, tuple(("", None) for _ in range(200_000)))
    [rows] = filled(filler_class(True), [opened(encode_batch([many, many]))], 0, 2)[:1]
    assert len(rows[0].headers or ()) == 200_000


@both
def test_corrupt_says_what_and_where(filler_class: FillerClass) -> None:
    header, data = opened(encode_batch([NewRecord(b"k", b"v" * 20, 1)] * 3))
    for wrong in (data[:-1], data + b"\0"):
        with pytest.raises(CorruptBatch):
            filled(filler_class(False), [(header, wrong)], 0, 9)
    broken = data.replace(b"\x02k", b"\x7fk", 1)
    with pytest.raises(CorruptBatch, match="key length"):
        filled(CompiledFiller(False), [(header, broken)], 0, 9)


def test_pandas_is_not_imported_for_it() -> None:
    program = (
        "import sys\n"
        "from kohort.spark.arrow.decoder import filler\n"
        "from kohort.spark.options.source import parse\n"
        "from kohort.spark.source.read import Range, _RowBuilder\n"
        "from kohort.wire.batches import HEADER_SIZE, NewRecord, encode_batch, read_header\n"
        "batch = encode_batch([NewRecord(b'k', None, 1)] * 3)\n"
        "for size in (1, 10**6):\n"
        "    columns = filler(size, False)\n"
        "    list(columns.take(read_header(batch), batch[HEADER_SIZE:], 0, 9))\n"
        "    assert _RowBuilder(Range('t', 0, 0, 9), ('value',), None)(columns.flush()).num_rows == 3\n"
        "assert 'numba' in sys.modules and 'pandas' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": ":".join(sys.path)}, timeout=280)
    assert done.returncode == 0


@both
def test_times_that_differ_by_more_than_64_bits(filler_class: FillerClass) -> None:
    batch = encode_batch([NewRecord(None, b"v", time) for time in (-1, 2**63 - 1)])
    [rows] = filled(filler_class(False), [opened(batch)], 0, 2)
    assert [row.time for row in rows] == [-1, 2**63 - 1]


def test_times_that_spark_cannot_hold_are_null() -> None:
    found = timestamps(pa.array([-1, 2**63 - 1, 9_223_372_036_854_775, -(2**63)]))
    assert found.cast(pa.int64()).to_pylist() == [-1_000, None, 9_223_372_036_854_775_000, None]


def test_the_decoder_is_chosen_once_it_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DECODER_VARIABLE, raising=False)
    monkeypatch.setattr(decoder_module, "_expected", 0)
    assert decoder().startswith("numba ")
    chosen = [type(filler(WORTH_IT // 2 - 1, False)) for _ in range(3)]
    assert chosen == [PlainFiller, PlainFiller, CompiledFiller]
    monkeypatch.setenv(DECODER_VARIABLE, "python")
    assert isinstance(filler(10**9, False), PlainFiller)
    assert decoder() == "python (KOHORT_SPARK_DECODER says so)"
    monkeypatch.setenv(DECODER_VARIABLE, "numba")
    assert isinstance(filler(1, False), CompiledFiller)
    monkeypatch.setenv(DECODER_VARIABLE, "cython")
    with pytest.raises(ValueError, match="KOHORT_SPARK_DECODER is 'cython'; it takes auto, numba or python"):
        decoder()


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (ModuleNotFoundError("numba"), "numba is not installed (pip install 'kohort[spark]')"),
        (ImportError("Numba needs NumPy 2.2"), "numba cannot be loaded (Numba needs NumPy 2.2)"),
    ],
)
def test_without_numba_the_plain_loop_runs_with_one_warning(
    failure: Exception, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Missing:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "kohort.spark.arrow.compiled":
                raise failure

    monkeypatch.delenv(DECODER_VARIABLE, raising=False)
    monkeypatch.delitem(sys.modules, "kohort.spark.arrow.compiled")
    monkeypatch.delattr("kohort.spark.arrow.compiled", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    monkeypatch.setattr(decoder_module, "_warned", False)
    assert decoder() == f"python ({why})"
    assert [type(filler(WORTH_IT, False)) for _ in range(2)] == [PlainFiller] * 2
    assert (
        capsys.readouterr().err == f"kohort: {why}, so records are decoded by a loop in Python, some ten times slower\n"
    )
    monkeypatch.setenv(DECODER_VARIABLE, "numba")
    with pytest.raises(ValueError, match="KOHORT_SPARK_DECODER is numba, but numba"):
        filler(1, False)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_processes_compile_at_the_same_time(tmp_path: Path) -> None:
    """The first tasks of all executors, with one cache that has nothing in it; and one that is damaged."""
    command = [sys.executable, "-c", "from kohort.spark.arrow import kernel as k; print(k.decode.signatures != [])"]
    place = {"NUMBA_CACHE_DIR": str(tmp_path), "PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path)}
    run = {"env": place, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    running = [subprocess.Popen(command, **run) for _ in range(3)]  # type: ignore[call-overload]
    assert [each.communicate(timeout=280)[0] for each in running] == ["True\n"] * 3
    for index in tmp_path.rglob("*.nbi"):
        index.write_bytes(index.read_bytes()[:60])
    assert subprocess.run(command, timeout=280, check=True, **run).stdout == "True\n"  # type: ignore[call-overload]


@pytest.mark.timeout(300)
def test_functions_compile_without_a_writable_cache(tmp_path: Path) -> None:
    """An executor may have read-only directories only."""
    program = (
        "from kohort.spark.runtime.compiled import compiled\n"
        "from numba import int64\n"
        "def twice(x): return 2 * x\n"
        "twice.__code__ = twice.__code__.replace(co_filename='/nowhere/at/all.py')\n"
        "assert compiled(int64(int64))(twice)(21) == 42\n"
    )
    path = tmp_path / "program.py"
    path.write_text(program)
    nowhere = {"HOME": "/proc", "XDG_CACHE_HOME": "/proc", "PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, str(path)], env=nowhere, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(300)
def test_memory_is_bounded_whatever_is_read() -> None:
    """A gigabyte of records, batches of 60 MB decompressed, records of 20 MB: what a worker holds stays the same."""
    script = Path(__file__).with_name("arrow_memory.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    grown = dict(line.split() for line in done.stdout.splitlines())
    assert int(grown["small"]) < 120, grown
    assert int(grown["compressed"]) < 120 + 3 * 64, grown
    assert int(grown["large"]) < 120 + 7 * 20, grown
