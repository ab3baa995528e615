"""The job `store-audit` finds what `mqcore store verify` finds, with the same words and places."""
from __future__ import annotations

import json
import random
import runpy
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mqcore.store.verify.report import DAMAGE, NOTE, Report
from mqcore.store.verify.store import verify
from tests.spark import faults
from tests.spark.world import KeptSession
from tests.store.golden import NAMES, unpack

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SPLIT_BYTES = 70_000
QUEUE_OFFSET, STORE_TIME = 20, 56      # bytes of a record's head


def findings(report: Report) -> list[tuple[str, str, int | None, str]]:
    """Without notes of what took turns: a clock that went back is none of the audit's matters."""
    return sorted(((one.severity, one.file, one.position, one.text) for one in report.findings
                   if not (one.severity == NOTE and "the clock went back" in one.text)), key=str)


def agree(spark: Any, root: Path) -> Report:
    from mqcore.spark.jobs.store_audit import audit

    verified = verify(root)
    audited = audit(spark, root, split_bytes=SPLIT_BYTES)

    assert findings(audited) == findings(verified)
    assert audited.status == verified.status
    assert audited.queues == verified.queues
    without = {"time_steps_back"}
    assert {name: value for name, value in audited.figures.items() if name not in without} == {
        name: value for name, value in verified.figures.items() if name not in without}
    return audited


@pytest.mark.parametrize("name", NAMES)
def test_a_stock_store_gets_the_verdict_of_verification(
        name: str, spark: Any, tmp_path: Path) -> None:
    agree(spark, unpack(name, tmp_path))


@pytest.mark.parametrize(("name", "seed"), [("basic", 1), ("delay_retry_dlq", 3)])
def test_each_fault_that_was_put_in_is_found(
        name: str, seed: int, spark: Any, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    chance = random.Random(seed)
    put_in = [*faults.break_queues(root, name, chance), *faults.break_index(root, name, chance),
              *faults.break_log(root, name, chance)]

    report = agree(spark, root)

    assert report.status == 1
    assert len(report.findings) >= len(put_in)


def test_times_and_numbers_at_their_limits_are_judged_as_verification_does(
        spark: Any, tmp_path: Path) -> None:
    from mqcore.spark.jobs.store_audit import audit

    root = unpack("basic", tmp_path)
    faults.stretch(root, "basic", 20, STORE_TIME, 1 << 62)
    faults.stretch(root, "basic", 40, STORE_TIME, -1 << 63)

    assert agree(spark, root).status == 1

    faults.stretch(root, "basic", 60, QUEUE_OFFSET, (1 << 63) - 1)
    said = {one.text for one in audit(spark, root, split_bytes=SPLIT_BYTES).findings}
    assert {one.text for one in verify(root).findings if one.severity == DAMAGE} <= said


def test_lost_files_and_faults_after_a_crash_are_judged_as_verification_does(
        spark: Any, tmp_path: Path) -> None:
    root = unpack("crashed", tmp_path)
    faults.break_queues(root, "crashed", random.Random(5))
    lost = sorted((root / "commitlog").iterdir())[1]
    lost.unlink()
    (root / "checkpoint").unlink()

    from mqcore.spark.jobs.store_audit import audit  # a plain user may have no pyspark

    audited, verified = audit(spark, root, split_bytes=SPLIT_BYTES), verify(root)

    # of more than 48 findings of a kind verification shows those that it meets first
    assert (audited.status, counts(audited)) == (verified.status, counts(verified))
    assert audited.queues == verified.queues


def counts(report: Report) -> dict[tuple[str, str], int]:
    """How many findings there are, by severity and folder."""
    found: dict[tuple[str, str], int] = {}
    for one in report.findings:
        words = one.text.split()
        more = int(words[0]) if words[1:5] == ["more", "of", "this", "kind:"] else 1
        place = one.severity, one.file.split("/")[0]
        found[place] = found.get(place, 0) + more
    return found


def test_the_command_says_it_in_one_line_and_by_its_status(
        spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch) -> None:
    root = unpack("crashed_torn", tmp_path)
    from mqcore.spark.jobs import frame, store_audit

    with ThreadPoolExecutor(1) as other:           # which has no active session of Spark
        outcome = other.submit(store_audit.store_audit, spark, root).result()
    assert outcome.status == 3
    assert json.loads(json.dumps(outcome.figures))["verdict"].startswith("the next start mends it")

    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(frame, "session", lambda *_: KeptSession(spark))
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "empty"), "--master", "local[1]"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(store_audit.__file__, run_name="__main__")
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert said.out == ""
    assert said.err.splitlines() == [
        f"store-audit: {tmp_path / 'empty'}: no store: neither commitlog nor consumequeue is there"]
