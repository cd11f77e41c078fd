"""Share groups: release records, and deliver archived ones again. The plans are those of `kohort groups`."""

from __future__ import annotations

from kohort.cli.groups.shares.describing import HOLDER_COLUMNS, share_offsets_of
from kohort.cli.groups.shares.redelivery import (
    COLUMNS,
    KNOWN,
    ONLY_KOHORT,
    REASONS,
    archived_of,
    by_place,
    cells,
    done_words,
    warnings,
)
from kohort.cli.groups.shares.redelivery import UNCHANGED as NOT_AGAIN
from kohort.cli.groups.shares.releasing import (
    COUNTS,
    UNCHANGED,
    give_back,
    holdings,
    members_to_release,
    record_count,
    released_words,
    rows_of,
    what_they_hold,
)
from kohort.cli.groups.shares.targets import chosen, share_group
from kohort.cli.option_objects import fail
from kohort.cli.output import plural
from kohort.cli.places import words_of
from kohort.client.cluster import Cluster
from kohort.console.changes.offsets import scope_in
from kohort.console.changes.plan import Outcome, Plan, Wrong
from kohort.console.forms import Form


def plan_of_release(cluster: Cluster, group: str, form: Form) -> Plan:
    found = share_group(cluster, group, UNCHANGED)
    offsets = share_offsets_of(cluster, group)
    places = chosen(group, offsets.partitions, {}, UNCHANGED)
    held = holdings(offsets, places)
    named = form.get("member", "").strip()
    wanted = members_to_release(found, held, [named] if named else [])
    rows = rows_of(found, held, wanted)
    if offsets.tells_records and not rows:
        raise Wrong("member", "It holds no records." if named else "Nobody holds records of this group.")

    def carry_out(cluster: Cluster) -> Outcome:
        refused = give_back(cluster, group, held if offsets.tells_records else None, wanted, places)
        if refused:
            [code, *_] = refused.values()
            where = words_of(place for _, place in refused)
            return Outcome(f"not released, because of {code.name}: {where}", done=False)
        return Outcome(released_words(found, rows, wanted))

    what = plural(record_count(rows), "record") if rows else what_they_hold(wanted)
    return Plan(
        f"Release {what} of group {group}?",
        "records released",
        "Release the records",
        carry_out,
        HOLDER_COLUMNS,
        rows,
        [f"Other members get them at once, and a member that works on them goes on. {COUNTS[0].upper()}{COUNTS[1:]}."],
        details={"members": ", ".join(wanted[:20]), "records": str(record_count(rows))},
    )


def plan_of_redelivery(cluster: Cluster, group: str, form: Form) -> Plan:
    share_group(cluster, group, NOT_AGAIN)
    offsets = share_offsets_of(cluster, group, KNOWN)
    if not offsets.tells_records:
        fail(f"{ONLY_KOHORT}; {NOT_AGAIN}")
    why = form.get("why", "")
    if why not in ("", *REASONS):
        raise Wrong("why", "Choose why they were archived.")
    places = chosen(group, offsets.partitions, scope_in(form), NOT_AGAIN)
    wanted = archived_of(offsets, places, why or None)
    if not wanted:
        raise Wrong("", "No archived records are known there.")
    count = sum(one.records for one in wanted)

    def carry_out(cluster: Cluster) -> Outcome:
        done, refused = cluster.share_groups.redeliver(group, by_place(wanted))
        if refused:
            [code, *_] = refused.values()
            return Outcome(f"not delivered again, because of {code.name}: {words_of(refused)}", done=False)
        return Outcome(done_words(group, done))

    return Plan(
        f"Deliver {plural(count, 'record')} of group {group} again?",
        "records redelivered",
        "Deliver them again",
        carry_out,
        COLUMNS,
        [cells(one) for one in wanted],
        warnings(offsets, wanted),
        details={"records": str(count)},
    )
