"""
What Apache's connector for Spark gets wrong, and where it is shown that ours does not.

A reader finds the seven here; each test says so itself, too.
"""
from __future__ import annotations

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent

DEFECTS = {
    "a task of the sink ends well while its sends are under way": [
        ("test_write.py", "test_a_write_that_no_broker_answers_fails")],
    "the sink writes body, topic and tags alone": [
        ("test_write.py", "test_what_is_written_is_read")],
    "the sink knows the last batch in memory only: a restart sends it again": [
        ("test_write.py", "test_a_batch_that_is_done_again_after_a_crash_sends_nothing_twice")],
    "a filter, or an offset that is gone, fails the task whatever failOnDataLoss says": [
        ("test_read.py", "test_a_filter_reaches_the_broker"),
        ("test_offsets.py", "test_a_gap_is_an_error_or_a_row")],
    "streams make a consumer for each task, and pull 32 messages at a time, one by one": [
        ("test_kills.py", "test_connections_are_used_again_and_closed_when_idle"),
        ("test_ranges.py", "test_requests_are_on_their_way_together_and_few_are_wasted")],
    "the last offset is committed, not the one behind it: a message is read again": [
        ("test_stream.py", "test_a_group_and_its_lag_are_where_operators_look")],
    "a request for each queue and poll; no times, topics, splitting, or run to the end": [
        ("test_offsets.py", "test_ends_are_asked_once_for_many_polls"),
        ("test_read.py", "test_offsets_may_be_given_by_queue_and_by_time"),
        ("test_read.py", "test_several_topics_are_read_by_name_and_by_pattern"),
        ("test_read.py", "test_queues_are_split_into_more_tasks"),
        ("test_stream.py", "test_a_stream_is_the_batch_in_parts")],
}


def test_there_are_seven() -> None:
    assert len(DEFECTS) == 7


@pytest.mark.parametrize("defect", DEFECTS)
def test_each_has_its_tests(defect: str) -> None:
    for file, name in DEFECTS[defect]:
        tree = ast.parse((FOLDER / file).read_text(encoding="utf-8"))
        found = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == name]
        assert found, f"{file} has no {name}"
        assert "Apache" in (ast.get_docstring(found[0]) or ""), f"{file}::{name} does not say so"
