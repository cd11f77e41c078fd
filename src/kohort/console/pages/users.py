"""Users, ACLs and quotas, in tabs. Each asks the cluster, and says why where the cluster does not tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from kohort.cli.groups.wording import plain
from kohort.client.admin.acls import ALLOW, OPERATIONS, PREFIXED, RESOURCES, AclBinding
from kohort.client.admin.quotas import CLIENT_ID, IP, USER, ClientQuotas
from kohort.client.admin.users import ScramUser
from kohort.console.paging import Order, ordered, page_of, wanted_order, wanted_page, wanted_search
from kohort.console.reading.users import acls, quotas, users
from kohort.console.shared import console_of
from kohort.console.words import Chip, count

ALLOWED, DENIED = Chip("allow", "ok"), Chip("deny", "gone")
KINDS = {USER: "user", CLIENT_ID: "client id", IP: "address"}
UNITS = {
    "producer_byte_rate": "bytes a second",
    "consumer_byte_rate": "bytes a second",
    "request_percentage": "% of a thread's time",
    "controller_mutation_rate": "partitions a second",
    "connection_creation_rate": "connections a second",
}


class View(NamedTuple):
    """A tab: its question, the columns that sort it, and a text in which a search looks."""

    label: str
    ask: Callable[..., Any]
    columns: Mapping[str, Callable[[Any], Any]]
    order: Order
    text: Callable[[Any], str]
    noun: str


class QuotaRow(NamedTuple):
    entity: str
    key: str
    value: float

    @property
    def number(self) -> str:
        return count(int(self.value)) if self.value.is_integer() else f"{self.value:,g}"

    @property
    def unit(self) -> str:
        return UNITS.get(self.key, "")


def operation_of(acl: AclBinding) -> str:
    return _word(OPERATIONS, acl.operation)


def resource_of(acl: AclBinding) -> str:
    prefixed = " (prefix)" if acl.pattern == PREFIXED else ""
    return f"{_word(RESOURCES, acl.resource)} {acl.name}{prefixed}"


def permission_of(acl: AclBinding) -> Chip:
    return ALLOWED if acl.permission == ALLOW else DENIED


def _word(words: Mapping[str, int], code: int) -> str:
    return next((word for word, known in words.items() if known == code), str(code))


def _mechanisms(user: ScramUser) -> str:
    return ", ".join(f"{name} ({count(iterations)} iterations)" for name, iterations in sorted(user.iterations.items()))


def _quota_rows(told: ClientQuotas) -> list[QuotaRow]:
    named = [(word, told.entity[kind]) for kind, word in KINDS.items() if kind in told.entity]
    entity = ", ".join(f"{word} {'<default>' if name is None else name}" for word, name in named)
    return [QuotaRow(entity, key, value) for key, value in sorted(told.values.items())]


VIEWS: dict[str, View] = {
    "users": View(
        "Users",
        users,
        {"user": lambda user: user.name, "mechanisms": _mechanisms},
        Order("user", False),
        lambda user: user.name,
        "users with a SCRAM credential",
    ),
    "acls": View(
        "ACLs",
        acls,
        {
            "principal": lambda acl: acl.principal,
            "permission": lambda acl: (permission_of(acl).label, operation_of(acl)),
            "resource": resource_of,
            "host": lambda acl: acl.host,
        },
        Order("principal", False),
        lambda acl: f"{acl.principal}\n{acl.name}\n{operation_of(acl)}\n{resource_of(acl)}\n{acl.host}",
        "ACLs",
    ),
    "quotas": View(
        "Quotas",
        quotas,
        {"entity": lambda row: row.entity, "quota": lambda row: row.key, "value": lambda row: row.value},
        Order("entity", False),
        lambda row: f"{row.entity}\n{row.key}",
        "quotas",
    ),
}


async def access(request: Request) -> Response:
    console, query = console_of(request), request.query_params
    tab = wanted_tab(query)
    view = VIEWS[tab]
    told = await console.answers.get(("access", tab), view.ask)
    rows = [row for one in told.rows for row in _quota_rows(one)] if tab == "quotas" else list(told.rows)
    search = wanted_search(query).lower()
    chosen = [row for row in rows if search in view.text(row).lower()]
    order = wanted_order(query, view.columns, view.order)
    return console.page(
        request,
        "access.html",
        title="Access",
        tab=tab,
        tabs={name: known.label for name, known in VIEWS.items()},
        refusal=plain(told.refusal),
        page=page_of(ordered(chosen, view.columns[order.column], order.down, view.text), wanted_page(query)),
        noun=view.noun,
        order=order,
        mechanisms=_mechanisms,
        permission=permission_of,
        operation=operation_of,
        resource=resource_of,
    )


def wanted_tab(query: QueryParams) -> str:
    tab = query.get("tab", "")
    return tab if tab in VIEWS else "users"


ROUTES = {"/access": access}
