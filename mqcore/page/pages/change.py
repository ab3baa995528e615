"""A form that changes something: its fields, its preview, and the result."""
from __future__ import annotations

import asyncio
from http import HTTPStatus

import click
from starlette.responses import Response

from mqcore.admin.shell.exits import Exit
from mqcore.admin.shell.runner import Plan
from mqcore.page.asking import ERRORS, Answer, code_of, planned, text_of
from mqcore.page.changes import Change, change, unsafe
from mqcore.page.context import STATUS, TEXT_MAX, Page
from mqcore.page.pages.tasks import begun
from mqcore.page.sessions import sent_form

WORK_S = 60.0


async def change_page(page: Page) -> Response:
    """GET: the form, with ?preview=1 what would happen. POST: it happens."""
    found = change(page.needed("do"))
    if found is None:
        return page.trouble(HTTPStatus.NOT_FOUND, "there is no such change")
    if page.request.method == "POST":
        return await _made(page, found)
    form = {field.name: page.text(field.name, field.default) for field in found.fields}
    plan, error = None, ""
    if page.text("preview"):
        plan, error = await _planned(page, found, form)
    return _shown(page, found, form, plan, error)


async def _planned(page: Page, found: Change, form: dict[str, str]) -> tuple[Plan | None, str]:
    try:
        refused = unsafe(found.verb, form)
        if refused:
            return None, refused
        async with page.site.searches.place():
            return await planned(page.admin, found.command, **found.options(form)), ""
    except (*ERRORS, ValueError) as error:
        return None, text_of(error)
    except TimeoutError:
        return None, "no answer in time"


def _shown(page: Page, found: Change, form: dict[str, str], plan: Plan | None, error: str,
           status: HTTPStatus | None = None) -> Response:
    answer = Answer(None if plan is None else plan.before, error, Exit.REFUSED,
                    found.as_typed(form) if plan is not None else "")
    return page.render(
        "change.html", found.title, {"answer": answer}, change=found, form=form, plan=plan,
        typed="" if plan is None or not plan.question else plan.name,
        back=_back(page, found, form),
        status=status or (HTTPStatus.OK if not error else HTTPStatus.BAD_REQUEST))


def _back(page: Page, found: Change, form: dict[str, str]) -> str:
    name = form.get("topic" if found.verb.startswith(("topic", "message-send")) else "group", "")
    return page.url(found.back, name=name) if found.back in (
        "/topic", "/group", "/dead-letters/group") else page.url(found.back)


async def _made(page: Page, found: Change) -> Response:
    """Make the change; the audit has a line for it, done or not."""
    sent = await sent_form(page)
    if isinstance(sent, Response):
        return sent
    form = {field.name: sent.get(field.name, "") for field in found.fields}
    plan, trouble = await _planned(page, found, form)
    if plan is None:
        return _shown(page, found, form, None, trouble)
    if plan.question and plan.name and sent.get("typed", "").strip() != plan.name:
        return _shown(page, found, form, plan, f"type {plan.name} to confirm",
                      HTTPStatus.BAD_REQUEST)
    if found.verb == "dlq-redrive":
        return await begun(page, found, form)
    answer = await _worked(plan, found, form)
    page.note(found.as_typed(form)[:TEXT_MAX],
              answer.error or ("done" if answer.status == Exit.DONE else "failed"))
    return page.render("changed.html", found.title, {"answer": answer}, change=found,
                       back=_back(page, found, form),
                       status=HTTPStatus.OK if not answer.error else STATUS.get(
                           answer.status, HTTPStatus.BAD_GATEWAY))


async def _worked(plan: Plan, found: Change, form: dict[str, str]) -> Answer:
    line = found.as_typed(form)
    try:
        async with asyncio.timeout(WORK_S):
            view = await plan.work()
    except TimeoutError:
        return Answer(None, f"no answer within {WORK_S:g} s: it may have been done, or in part",
                      Exit.UNKNOWN, line)
    except (*ERRORS, click.ClickException) as error:
        return Answer(None, text_of(error), code_of(error), line)
    return Answer(view, "", view.status, line)
