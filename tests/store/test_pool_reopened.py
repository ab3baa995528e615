"""A pool over a log that ends in the middle of a segment goes on in that segment, and closes it."""
from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mqcore.layout import PUT_OK
from tests.store.harness import Run
from tests.support.waiting import wait_until

SEGMENT = 4096
BODY = b"x" * 300


def stored(run: Run, count: int) -> int:
    """`count` messages through a pool, committed and closed; where the log ends."""
    end = run.recover(clean=False).end
    loop, probe = run.writer("transient-pool", end, commit_interval_ms=1), run.probe()
    services = [threading.Thread(target=loop.run_service, args=[name])
                for name in loop.services()]
    for service in services:
        service.start()
    for number in range(count):
        assert probe.send("topic", 0, [BODY], opaque=number)
    answers: list[int] = []

    def all_answered() -> bool:
        loop.run(10)
        answers.extend(status for _, status, *_ in probe.take())
        return len(answers) == count

    wait_until(all_answered, "all answers")
    loop.finish()
    loop.stop_service()
    for service in services:
        service.join()
    assert answers == [PUT_OK] * count
    return int(run.segment.log_state()["published"])


@pytest.mark.parametrize("first", [9, 10, 11])
def test_the_next_run_of_a_pool_begins_no_record_that_its_segment_cannot_hold(
    tmp_path: Path, first: int
) -> None:
    root = tmp_path / "store"
    before = stored(Run(root, segment_size=SEGMENT), first)
    end = stored(Run(root, segment_size=SEGMENT), 5)

    assert before % SEGMENT
    assert {path.stat().st_size for path in (root / "commitlog").iterdir()} == {SEGMENT}
    records = [record for record in Run(root, segment_size=SEGMENT).records(end)
               if not record.get("blank")]
    assert [record["queueOffset"] for record in records] == list(range(first + 5))
