"""Tasks: dead letters that are being sent again, how far they are, and their end."""
from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response

from mqcore.admin.nouns import dlq
from mqcore.admin.shell import units
from mqcore.admin.shell.view import Column, Table, View
from mqcore.page.asking import Answer
from mqcore.page.changes import Change
from mqcore.page.context import TEXT_MAX, Page
from mqcore.page.sessions import sent_form
from mqcore.page.tasks import DONE, RUNNING, Task, TaskRefusedError

ROWS = (
    Column("BEGAN", "began", units.moment), Column("GROUP", "group"), Column("STATE", "state"),
    Column("SENT", "sent", units.count, right=True),
    Column("FAILED", "failed", units.count, right=True),
    Column("LEFT OUT", "left_out", units.count, right=True),
    Column("OF", "letters", units.count, right=True), Column("USER", "user"),
)
FAILURES = (Column("ID", "messageId"), Column("TO", "topic"), Column("RESULT", "result"))


def _document(one: Task) -> dict[str, object]:
    return {"id": one.id, "group": one.group, "state": one.state, "sent": one.sent,
            "failed": one.failed, "left_out": one.left_out, "letters": one.letters,
            "began": one.began, "ended": one.ended, "user": one.user, "command": one.line,
            "error": one.error, "failures": one.failures}


async def tasks(page: Page) -> Response:
    """The newest ones."""
    rows = [_document(one) for one in page.site.tasks.of(page.cluster.base)]
    answer = Answer(View({"tasks": rows}, [Table(ROWS, rows, "no dead letters were sent again")]))
    return page.render("tasks.html", "Tasks", {"answer": answer}, listing=page.listing(
        answer, 0, name="group", links={"group": lambda row: page.url("/task", id=row["id"])},
        flags={"state": lambda row: {DONE: "good", RUNNING: ""}.get(str(row["state"]), "warn")}))


async def task(page: Page) -> Response:
    """One task; POST cancels it."""
    one = page.site.tasks.one(page.cluster.base, page.needed("id"))
    if one is None:
        return page.trouble(HTTPStatus.NOT_FOUND, "there is no such task")
    if page.request.method == "POST":
        sent = await sent_form(page)
        if isinstance(sent, Response):
            return sent
        page.site.tasks.cancel(one)
        page.note(f"cancel {one.line}", "done")
        return page.redirect("/task", id=one.id)
    answer = Answer(View(_document(one), [Table(FAILURES, one.failures, "none")]), command=one.line)
    return page.render(
        "task_state.html" if "hx-request" in page.request.headers else "task.html", "Task",
        {"answer": answer}, task=one,
        tried=min(one.letters, one.sent + one.failed),
        failures=page.listing(answer, 0, sortable=False) if one.failures else None)


async def begun(page: Page, found: Change, form: dict[str, str]) -> Response:
    """Begin a redrive; the browser goes to its page."""
    line = found.as_typed(form)[:TEXT_MAX]
    try:
        page.site.tasks.check(page.cluster.base, form["group"].strip())
    except TaskRefusedError as error:
        return page.trouble(HTTPStatus.CONFLICT, str(error))
    credentials = page.session.credentials if page.session else None
    admin = page.cluster.new_admin(credentials, page.site.masks_for(page.session))
    await admin.start()
    try:
        async with page.site.searches.place():
            redrive = await dlq.redrive(admin, **found.options(form))
        one = page.site.tasks.begin(
            page.cluster.base, redrive, admin, page.session.user if page.session else "", line,
            form, lambda one: page.note(line, f"{one.state}: {one.sent} sent, {one.failed} failed,"
                                              f" {one.left_out} left out"))
    except TaskRefusedError as error:
        await admin.close(0)
        return page.trouble(HTTPStatus.CONFLICT, str(error))
    except BaseException:
        await admin.close(0)
        raise
    page.note(line, "begun")
    return page.redirect("/task", id=one.id)
