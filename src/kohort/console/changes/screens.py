"""The pages of a change: the form, the plan with its confirmation, the outcome.

All are plain forms and redirects, so that a page can be loaded again and nothing is done twice. The confirmation of a
plan takes it from its shelf before it is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from kohort.cli.option_objects import Failed
from kohort.client.errors import AuthenticationFailed, ConnectionFailed, KafkaError, TimedOut
from kohort.console import audit
from kohort.console.changes.kinds import CHANGES, Change
from kohort.console.changes.plan import SHOWN, Ended, Outcome, Plan, Planned, Plans, Subject, Wrong
from kohort.console.forms import Form, check_token, read_form
from kohort.console.shared import Console, address, console_of

READ_ONLY = "this console only reads; kohort console --allow-changes lets it change groups and topics"
FIELDS = {"--to-datetime": "time", "--by-duration": "duration", "--before": "before"}
"""The fields of a form by the options of the command that they stand for."""


def plans_of(console: Console) -> Plans:
    if console.plans is None:
        raise HTTPException(403, READ_ONLY)
    return console.plans


def change_of(request: Request) -> tuple[str, Change, Subject]:
    """The change that an address names, and what it is of."""
    name = request.path_params["name"]
    change = CHANGES.get(name)
    if change is None:
        raise HTTPException(404, "there is no such change")
    subject = request.query_params.get(change.kind, "") if change.kind else ""
    if change.kind and change.kind not in request.query_params:
        raise HTTPException(404, f"the address names no {change.kind}")
    return name, change, Subject(change.kind, subject)


# -- the form


async def form(request: Request) -> Response:
    console = console_of(request)
    plans_of(console)
    name, change, subject = change_of(request)
    given = {key: value for key, value in request.query_params.items() if key in ("before", "topics", "member")}
    return await _form(request, console, (name, change, subject), given)


async def plan(request: Request) -> Response:
    """Plan what the form says, and show it; or the form again, with what is wrong."""
    console = console_of(request)
    plans = plans_of(console)
    name, change, subject = change_of(request)
    given = await read_form(request)
    check_token(given, console.token)
    try:
        made: Plan = await console.answers.do(lambda cluster: change.plan(cluster, subject.name, given))
    except Wrong as wrong:
        problem = Wrong(wrong.field, _sentence(wrong.message))
    except typer.BadParameter as error:
        problem = _of_option(error)
    except Failed as error:
        problem = Wrong("", _sentence(error.message))
    except (ConnectionFailed, TimedOut, AuthenticationFailed):
        raise
    except KafkaError as error:
        problem = Wrong("", _sentence(error.message))
    else:
        number = plans.waiting.put(Planned(made, name, subject))
        return RedirectResponse(f"/plan/{number}", 303)
    return await _form(request, console, (name, change, subject), given, problem)


async def _form(
    request: Request, console: Console, what: tuple[str, Change, Subject], given: Form, wrong: Wrong | None = None
) -> Response:
    name, change, subject = what
    return console.page(
        request,
        "change.html",
        400 if wrong else 200,
        title=f"{'Error: ' if wrong else ''}{change.title}",
        heading=change.title,
        fields=f"changes/{name}.html",
        subject=subject,
        action=address(f"/change/{name}", **({change.kind: subject.name} if change.kind else {})),
        given=given,
        wrong=wrong,
        facts=await _facts(console, change, subject),
    )


async def _facts(console: Console, change: Change, subject: Subject) -> Mapping[str, Any]:
    try:
        return await console.answers.do(lambda cluster: change.facts(cluster, subject.name))
    except Failed as error:
        raise HTTPException(404, error.message) from None


def _of_option(error: typer.BadParameter) -> Wrong:
    """A message of the command's option, for the field that stands for it."""
    hint = error.param_hint or ()
    [flag] = [hint] if isinstance(hint, str) else list(hint)[:1] or [""]
    return Wrong(FIELDS.get(flag, "" if flag.startswith("-") else flag), _sentence(error.message))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('?', '.')) else '.'}"


# -- the plan


async def planned(request: Request) -> Response:
    console = console_of(request)
    number, found = _waiting(request, console)
    return _plan(request, console, number, found)


async def carry_out(request: Request) -> Response:
    console = console_of(request)
    plans = plans_of(console)
    given = await read_form(request)
    check_token(given, console.token)
    number, found = _waiting(request, console)
    if (typed := found.plan.typed) and given.get("typed", "").strip() != typed.strip():
        return _plan(request, console, number, found, f"Type {typed} to confirm. Nothing was changed.")
    plans.waiting.take(number)
    outcome = await _carried_out(request, console, found)
    return RedirectResponse(f"/outcome/{plans.ended.put(Ended(outcome, found))}", 303)


async def _carried_out(request: Request, console: Console, found: Planned) -> Outcome:
    try:
        outcome: Outcome = await console.answers.do(found.plan.carry_out, changes=True)
        console.making.clear()
    except (Failed, KafkaError) as error:
        unknown = " It is not known whether it was done." if isinstance(error, ConnectionFailed | TimedOut) else ""
        outcome = Outcome(f"{_sentence(error.message)}{unknown}", done=False)
        said = "unknown" if unknown else "refused"
    else:
        said = "done" if outcome.done else "refused"
    subject = {found.subject.kind: found.subject.name} if found.subject.kind else {}
    why = {} if outcome.done else {"reason": outcome.text}
    audit.note(found.plan.event, **subject, **found.plan.details, **who(request, console), outcome=said, **why)
    return outcome


def who(request: Request, console: Console) -> dict[str, str]:
    """Of a request, for the log."""
    actor = console.user or request.app.state.access.actor
    return {"by_user": actor or "-", "by_host": request.client.host if request.client else "-"}


def _waiting(request: Request, console: Console) -> tuple[int, Planned]:
    number = request.path_params["number"]
    found = plans_of(console).waiting.get(number)
    if found is None:
        raise HTTPException(
            404, "this plan was carried out already, or is too old; make a new one from the page of the group or topic"
        )
    return number, found


def _plan(request: Request, console: Console, number: int, found: Planned, problem: str = "") -> Response:
    return console.page(
        request,
        "plan.html",
        400 if problem else 200,
        title=f"{'Error: ' if problem else ''}{found.plan.question}",
        number=number,
        plan=found.plan,
        rows=[list(zip(found.plan.columns, row, strict=True)) for row in found.plan.rows[:SHOWN]],
        heading=CHANGES[found.change].title,
        subject=found.subject,
        change=found.change,
        problem=problem,
    )


# -- the outcome


async def outcome(request: Request) -> Response:
    console = console_of(request)
    found = plans_of(console).ended.get(request.path_params["number"])
    if found is None:
        raise HTTPException(404, "this outcome is not kept any more; the log of the console has a line of it")
    title = "Done" if found.outcome.done else "Not done"
    return console.page(
        request,
        "outcome.html",
        title=title,
        heading=title,
        outcome=found.outcome,
        text=_sentence(found.outcome.text),
        subject=found.planned.subject,
        details=found.planned.plan.details,
    )


ROUTES = {"/change/{name}": form, "/plan/{number:int}": planned, "/outcome/{number:int}": outcome}
FORMS = [
    Route("/change/{name}", plan, methods=["POST"]),
    Route("/plan/{number:int}", carry_out, methods=["POST"]),
]
