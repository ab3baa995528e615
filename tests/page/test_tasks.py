"""Redrives as tasks: progress, a rate, a cancel, an end of the process in the middle."""
from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mqcore.admin.nouns import dlq
from mqcore.client import Admin, AsyncAdmin, BrokerError, Message, Producer, PushConsumer, Reject
from mqcore.page.masking import PageAdmin
from mqcore.page.tasks import Task, TaskRefusedError, Tasks
from tests.page.conftest import World, client, site
from tests.page.html import Page
from tests.support.waiting import WAIT_S, wait_until

GROUP, TOPIC, COUNT = "redriven", "redrive-origin", 30


def _rejected(_message: object) -> None:
    raise Reject("it is to become a dead letter")


@pytest.fixture(scope="module")
def dead(world: World) -> Iterator[World]:
    with Admin(world.namesrv) as admin:
        admin.create_topic(TOPIC, queues=1)
        with Producer("tasks", namesrv=world.namesrv) as producer:
            producer.send_many([Message(TOPIC, f"letter {number}") for number in range(COUNT)])
        with PushConsumer(GROUP, TOPIC, _rejected, namesrv=world.namesrv, start="earliest"):
            wait_until(lambda: len(admin.dead_letters(GROUP)) == COUNT
                       if f"%DLQ%{GROUP}" in admin.topics() else False, "the dead letters")
        yield world


class Steps(dlq.Redrive):
    """A redrive of `count` letters, of which each waits for its turn."""

    async def rows(self, admin: AsyncAdmin) -> AsyncGenerator[dict[str, Any], None]:
        for number in range(self.count):
            await _turns[-1].wait()
            if self.to == "an error":
                raise BrokerError(1, "no more")
            yield {"messageId": f"{number}", "offsetMessageId": "", "topic": "t",
                   "error": "refused" if self.to == "refused" else None,
                   "result": "refused" if self.to == "refused" else dlq.SENT_AGAIN,
                   "newOffsetMessageId": None}


_turns: list[asyncio.Event] = []          # of the running event loop, the newest last


def steps(group: str = "g", count: int = 3, to: str = "topic") -> Steps:
    return Steps(group, deque(), count, 0, False, (), (), to, None, False)


def under_tasks(file: Path | None, work: Callable[[Tasks, Callable[..., Task]], Any]) -> Any:
    """Run `work` with tasks, and with what begins one."""
    async def run() -> Any:
        _turns.append(asyncio.Event())
        tasks = Tasks(file)

        def begin(redrive: Steps, ended: Callable[[Task], None] = lambda _: None) -> Task:
            return tasks.begin("", redrive, PageAdmin("127.0.0.1:1"), "ann", "a line",
                               {"group": redrive.group}, ended)

        async with asyncio.timeout(WAIT_S):
            found = await work(tasks, begin)
            await tasks.close()
        return found

    return asyncio.run(run())


async def ended(one: Task) -> None:
    while one.is_running:
        await asyncio.sleep(0)


def test_a_task_counts_and_tells_its_end() -> None:
    told: list[str] = []

    async def work(_tasks: Tasks, begin: Callable[..., Task]) -> None:
        one = begin(steps(count=3), lambda task: told.append(task.state))
        failing, broken = begin(steps("h", to="refused")), begin(steps("i", to="an error"))
        _turns[-1].set()
        for each in (one, failing, broken):
            await ended(each)
        assert (one.sent, one.failed, one.state) == (3, 0, "done")
        assert (failing.sent, failing.failed, failing.state) == (0, 3, "failed")
        assert len(failing.failures) == 3
        assert (broken.state, "no more" in broken.error) == ("failed", True)

    under_tasks(None, work)
    assert told == ["done"]


def test_a_group_has_one_task_and_a_page_four() -> None:
    async def work(tasks: Tasks, begin: Callable[..., Task]) -> None:
        first = begin(steps("g0"))
        with pytest.raises(TaskRefusedError, match="group g0"):
            begin(steps("g0"))
        for number in (1, 2, 3):
            begin(steps(f"g{number}"))
        with pytest.raises(TaskRefusedError, match="4 tasks"):
            begin(steps("g4"))
        tasks.cancel(first)
        await ended(first)
        assert first.state == "cancelled"
        while first.ended is None:
            await asyncio.sleep(0)
        begin(steps("g0"))

    under_tasks(None, work)


def test_old_tasks_make_room() -> None:
    async def work(tasks: Tasks, begin: Callable[..., Task]) -> None:
        waiting = begin(steps("waits"))
        _turns[-1].set()
        for number in range(60):
            await ended(begin(steps(f"g{number}", count=0)))
            await asyncio.sleep(0)
        assert len(tasks.of("")) == 50
        assert not waiting.is_running or waiting in tasks.of("")

    under_tasks(None, work)


def test_a_task_that_the_end_of_the_process_ended_is_told_as_such(tmp_path: Path) -> None:
    file = tmp_path / "http" / "tasks.json"

    async def work(tasks: Tasks, begin: Callable[..., Task]) -> list[dict[str, Any]]:
        begin(steps(count=3))
        await asyncio.sleep(0)
        return json.loads(file.read_bytes())        # what a kill leaves

    rows = under_tasks(file, work)
    assert [(row["state"], row["sent"]) for row in rows] == [("running", 0)]
    file.write_text(json.dumps(rows))
    after, = Tasks(file).of("")
    assert (after.state, after.form) == ("interrupted", {"group": "g"})
    assert file.stat().st_mode & 0o77 == 0
    for odd in ("", "{", "[1]", '[{"id": 1}]', "null"):
        file.write_text(odd)
        assert Tasks(file).of("") == []


def test_a_redrive_is_cancelled_continued_and_sends_each_once(
        dead: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlq, "STEP_MAX", 2)
    of = site(dead, write=True)
    form = {"group": GROUP, "to": "topic", "rate": "0.2"}
    with client(of) as browser:
        def begin() -> str:
            page = Page(browser.get("/change", params={
                "do": "dlq-redrive", "preview": 1, **form}).text)
            answer = browser.post("/change?do=dlq-redrive", data={
                **form, "token": page.fields["token"], "typed": GROUP})
            assert answer.status_code in (303, 409), answer.text
            return answer.headers.get("location", answer.text)

        def state(task: str) -> dict[str, Any]:
            return dict(browser.get(f"{task}&format=json").json())

        task = begin()
        wait_until(lambda: state(task)["sent"] >= 1, "a letter")
        assert "is running" in begin()
        page = Page(browser.get(task).text)
        assert page.faults == []
        assert browser.post(task, data={"token": "forged"}).status_code == 403
        assert state(task)["state"] == "running"
        assert browser.post(task, data={"token": page.fields["token"]}).status_code == 303
        wait_until(lambda: state(task)["state"] == "cancelled", "the end of the task")
        shown = Page(browser.get(task).text)
        assert "It ended early" in shown.text
        assert any("do=dlq-redrive" in link for link in shown.links)
        sent = state(task)["sent"]
        assert 1 <= sent < COUNT
        with Admin(dead.namesrv) as admin:
            def copies() -> list[str]:
                return sorted(one.properties["REDRIVE_FROM"] for one in admin.read(TOPIC, count=200)
                              if "REDRIVE_FROM" in one.properties)

            wait_until(lambda: len(admin.resent_before(
                admin.dead_letters(GROUP).items, to="topic")) == len(copies()), "the index")
            form["rate"] = ""
            task = begin()
            wait_until(lambda: state(task)["state"] == "done", "the rest")
            assert len(copies()) == len(set(copies())) == COUNT
    audit = [line.outcome for line in of.trail.lines]
    assert audit[-1] == "begun"
    assert any(line.startswith("cancelled: ") for line in audit)


def test_letters_that_another_one_sent_meanwhile_are_left_out(dead: World) -> None:
    async def run() -> list[str]:
        async with PageAdmin(dead.namesrv) as admin:
            options: dict[str, Any] = dict.fromkeys(("since", "until", "key", "grep"))
            first = await dlq.redrive(admin, GROUP, limit=100, to="group", rate=None, again=False,
                                      **options)
            second = await dlq.redrive(admin, GROUP, limit=100, to="group", rate=None, again=False,
                                       **options)
            assert [row["result"] async for row in first.rows(admin)] == ["sent"] * COUNT
            async with asyncio.timeout(WAIT_S):
                letters = (await admin.dead_letters(GROUP)).items
                while len(await admin.resent_before(letters)) < COUNT:
                    await asyncio.sleep(0)
            return [row["result"] async for row in second.rows(admin)]

    assert asyncio.run(run()) == ["left out"] * COUNT


def test_a_page_that_only_shows_begins_and_cancels_nothing(dead: World) -> None:
    with client(site(dead)) as browser:
        assert browser.post("/change?do=dlq-redrive", data={"group": GROUP}).status_code == 404
        assert browser.post("/task?id=x", data={}).status_code == 404
        assert browser.get("/task?id=x").status_code == 404
        assert Page(browser.get("/tasks").text).faults == []
