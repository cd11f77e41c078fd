"""The tables of the engine, in the schema `kohort` of the database, and the statements of a commit.

A commit names its turn: the node's row has the number of the last one, and takes the next one only. A commit that is
repeated, or comes from a process that another one has replaced, finds another number or incarnation and writes nothing.
Under READ COMMITTED a commit that has waited for the row looks at it again, so a commit that waited behind a takeover
writes nothing either.

`batch` has a row a record batch. Rows before `log.first_batch` are trimmed, and deleted later (purge.py), as are those
of a log that is `gone`. `log` changes only with trims, compactions and deletions: the end of a log is the end of its
last batch, or `end_floor` where that batch is gone. `removed_opened` counts the transactions that removed batches
opened, less those that they ended.
"""

from __future__ import annotations

FORMAT_VERSION = 1
SHARED_VERSION = 2
"""The format of a database whose nodes serve at once. It has more tables, and leader epochs that count differently."""

# While a migration fills a database, and after one that was interrupted, its format is the negative of what it will be.
# No node serves it.
NUMBERS_A_BLOCK = 1000
"""Numbers of logs that a node reserves at a time."""

SCHEMA = f"""
CREATE TABLE kohort.cluster (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  format int NOT NULL,
  system_identifier bigint NOT NULL -- the server's; a copy of the database in another server has another one
);
CREATE TABLE kohort.node (
  id int PRIMARY KEY,
  incarnation bigint NOT NULL, -- changes with each process, and with each takeover
  turn bigint NOT NULL -- the last committed turn
) WITH (fillfactor = 10);
CREATE TABLE kohort.node_lease ( -- apart: a commit that waits for its standby keeps the row of `node`
  id int PRIMARY KEY,
  incarnation bigint NOT NULL,
  until timestamptz NOT NULL,
  instance text NOT NULL, -- the process; empty when it has stopped
  host text NOT NULL,
  port int NOT NULL,
  rack text,
  listeners text NOT NULL -- JSON: the host and port of each listener
) WITH (fillfactor = 10);
CREATE TABLE kohort.slot (
  id smallint PRIMARY KEY,
  owner int NOT NULL,
  epoch int NOT NULL, -- raised by each takeover
  wanted int -- the node that should own it
);
CREATE TABLE kohort.log (
  no bigint PRIMARY KEY, -- never given twice
  topic_id bytea NOT NULL,
  partition int NOT NULL,
  start_offset bigint NOT NULL,
  first_batch bigint NOT NULL, -- the base offset of the first batch, or the end of the log
  end_floor bigint NOT NULL, -- the end offset is at least this
  removed_opened int NOT NULL DEFAULT 0,
  gone boolean NOT NULL DEFAULT false, -- deleted; its batches are not purged yet
  purged bigint NOT NULL DEFAULT 0 -- rows before this offset are purged
);
CREATE UNIQUE INDEX log_by_key ON kohort.log (topic_id, partition) WHERE NOT gone;
CREATE INDEX log_to_purge ON kohort.log (no) WHERE gone OR purged < first_batch;
CREATE SEQUENCE kohort.log_no INCREMENT {NUMBERS_A_BLOCK};
CREATE TABLE kohort.kept_producers (log bigint PRIMARY KEY, data bytea NOT NULL);
CREATE TABLE kohort.batch (
  log bigint NOT NULL,
  base_offset bigint NOT NULL,
  last_offset bigint NOT NULL,
  max_timestamp bigint NOT NULL,
  producer_id bigint NOT NULL,
  transaction_start bigint NOT NULL,
  leader_epoch int NOT NULL,
  coordinator_epoch int NOT NULL,
  base_sequence int NOT NULL,
  producer_epoch smallint NOT NULL,
  kind smallint NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (log, base_offset)
) WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);
ALTER TABLE kohort.batch ALTER COLUMN data SET STORAGE EXTERNAL; -- records are compressed by clients
"""

BATCH_COLUMNS = (
    "log, base_offset, last_offset, max_timestamp, producer_id, transaction_start, leader_epoch, coordinator_epoch, "
    "base_sequence, producer_epoch, kind, data"
)
BATCH_TYPES = (
    *("bigint",) * 6,
    *("int",) * 3,
    *("smallint",) * 2,
    "bytea",
)


def _arrays(first: int, types: tuple[str, ...]) -> str:
    return ", ".join(f"${first + n}::{name}[]" for n, name in enumerate(types))


APPEND_TURN = f"""
WITH fence AS (
  UPDATE kohort.node SET turn = $3 WHERE id = $1 AND incarnation = $2 AND turn = $3::bigint - 1 RETURNING turn
), put AS (
  INSERT INTO kohort.batch ({BATCH_COLUMNS})
  SELECT u.* FROM fence, unnest({_arrays(4, BATCH_TYPES)}) u
)
SELECT turn FROM fence
"""
"""A turn that only appends. Its row is the turn; none if the commit is fenced."""

_CREATED = (
    ("c_no", "bigint"),
    ("c_topic", "bytea"),
    ("c_partition", "int"),
    ("c_start", "bigint"),
    ("c_first", "bigint"),
    ("c_floor", "bigint"),
    ("c_opened", "int"),
)
_CHANGED = (
    ("l_no", "bigint"),
    ("l_start", "bigint"),
    ("l_first", "bigint"),
    ("l_floor", "bigint"),
    ("l_opened", "int"),
    ("l_gone", "boolean"),
)
_KEPT = (("k_log", "bigint"), ("k_data", "bytea"))
_DELETED = (("d_log", "bigint"), ("d_first", "bigint"), ("d_last", "bigint"))
_BATCHES = tuple((f"b_{number}", name) for number, name in enumerate(BATCH_TYPES))
_ARGUMENTS = (*_CREATED, *_CHANGED, *_KEPT, *_DELETED, *_BATCHES)


def _unnested(columns: tuple[tuple[str, str], ...]) -> str:
    return f"unnest({', '.join(name for name, _ in columns)})"


FUNCTIONS = f"""
CREATE FUNCTION kohort.commit_turn(
  p_node int, p_incarnation bigint, p_turn bigint, {", ".join(f"{name} {type_}[]" for name, type_ in _ARGUMENTS)}
) RETURNS bigint LANGUAGE plpgsql AS $function$
BEGIN
  UPDATE kohort.node SET turn = p_turn WHERE id = p_node AND incarnation = p_incarnation AND turn = p_turn - 1;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  UPDATE kohort.log SET start_offset = u.start, first_batch = u.first, end_floor = u.floor, removed_opened = u.opened,
    gone = u.gone
    FROM {_unnested(_CHANGED)} AS u(no, start, first, floor, opened, gone) WHERE log.no = u.no;
  INSERT INTO kohort.log (no, topic_id, partition, start_offset, first_batch, end_floor, removed_opened)
    SELECT u.* FROM {_unnested(_CREATED)} AS u;
  DELETE FROM kohort.kept_producers k USING unnest(k_log) AS u(log) WHERE k.log = u.log;
  INSERT INTO kohort.kept_producers (log, data)
    SELECT u.log, u.data FROM {_unnested(_KEPT)} AS u(log, data) WHERE u.data IS NOT NULL;
  DELETE FROM kohort.batch b USING {_unnested(_DELETED)} AS u(log, first, last)
    WHERE b.log = u.log AND b.base_offset BETWEEN u.first AND u.last;
  INSERT INTO kohort.batch ({BATCH_COLUMNS}) SELECT u.* FROM {_unnested(_BATCHES)} AS u;
  RETURN p_turn;
END
$function$;
"""
"""Deletions come before insertions: a turn may create a log anew."""

WHOLE_SCHEMA = f"CREATE SCHEMA IF NOT EXISTS kohort; {SCHEMA} {FUNCTIONS}"
SHARED_SCHEMA = """
CREATE TABLE kohort.producer_ids (one boolean PRIMARY KEY DEFAULT true CHECK (one), next_id bigint NOT NULL);
INSERT INTO kohort.producer_ids VALUES (true, 0);
CREATE TABLE kohort.log_end ( -- as the owners say now and then: what other nodes know of a log
  topic_id bytea NOT NULL,
  partition int NOT NULL,
  start_offset bigint NOT NULL,
  end_offset bigint NOT NULL,
  changed timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (topic_id, partition)
) WITH (fillfactor = 50);
CREATE INDEX log_end_by_time ON kohort.log_end (changed);
CREATE TABLE kohort.ask ( -- requests of nodes for the controller
  id bigserial PRIMARY KEY,
  asked timestamptz NOT NULL DEFAULT clock_timestamp(),
  request bytea NOT NULL,
  host text NOT NULL,
  principal_type text NOT NULL,
  principal text NOT NULL,
  listener text NOT NULL,
  answer bytea
);
CREATE TABLE kohort.drained (id int PRIMARY KEY); -- nodes that give their slots away, and get none
CREATE FUNCTION kohort.move_slots(p_node int, p_taken int[], p_given int[], p_to int[]) RETURNS void
LANGUAGE plpgsql AS $function$
DECLARE
  found bigint;
BEGIN
  SELECT count(*) INTO found FROM kohort.slot WHERE owner = p_node AND id = ANY (p_taken);
  IF found <> cardinality(p_taken) THEN
    RAISE EXCEPTION 'a slot has another owner' USING ERRCODE = 'KH001';
  END IF;
  UPDATE kohort.slot SET owner = u.node, epoch = epoch + 1, wanted = NULL
    FROM unnest(p_given, p_to) AS u(id, node) WHERE slot.id = u.id AND owner = p_node;
  GET DIAGNOSTICS found = ROW_COUNT;
  IF found <> cardinality(p_given) THEN
    RAISE EXCEPTION 'a slot has another owner' USING ERRCODE = 'KH001';
  END IF;
END
$function$;
"""
"""For nodes that serve at once. A node takes and gives slots in a turn of its own, behind the fence of that turn."""
ANOTHER_OWNER = "KH001"

CHANGE_TURN = f"SELECT kohort.commit_turn({', '.join(f'${n + 1}' for n in range(3 + len(_ARGUMENTS)))})"
_LAST = 3 + len(_ARGUMENTS)
SLOT_TURN = f"""
WITH done AS MATERIALIZED ({CHANGE_TURN} AS turn), moved AS MATERIALIZED (
  SELECT kohort.move_slots($1, ${_LAST + 1}::int[], ${_LAST + 2}::int[], ${_LAST + 3}::int[])
  FROM done WHERE turn IS NOT NULL
)
SELECT turn FROM done LEFT JOIN moved ON true
"""
"""A turn that also takes or gives slots. `moved` comes after `done`, because it depends on it."""
EMPTY_TURN = (
    "UPDATE kohort.node SET turn = $3 WHERE id = $1 AND incarnation = $2 AND turn = $3::bigint - 1 RETURNING turn"
)
CHANNEL = "kohort"
"""Of NOTIFY: leases or slots have changed."""
LOCK = 0x6B6F686F7274
"""Of pg_advisory_xact_lock: held by who creates tables, registers or takes over."""
