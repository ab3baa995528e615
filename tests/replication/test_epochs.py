"""Two tables of epochs say up to where two logs are one; a table that cannot be is refused."""
from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore.replication import epochs
from mqcore.replication.epochs import (
    Branch,
    Epoch,
    EpochsError,
    History,
    Standing,
    State,
    Told,
    common_end,
    parted,
)
from mqcore.replication.greet import GREETING_WORDS_MAX
from mqcore.replication.greeting import words
from mqcore.replication.role import Role

STEPS = st.lists(st.tuples(
    st.sampled_from(["append", "follow", "promote"]), st.integers(0, 2), st.integers(0, 2),
    st.integers(1, 50)), max_size=40)


class Log:
    """A log as a list of who wrote each byte, and when."""

    def __init__(self, name: str, content: list[int], history: History) -> None:
        self.name, self.content, self.history = name, content, history


def same_length(one: list[int], other: list[int]) -> int:
    return next((place for place, pair in enumerate(zip(one, other, strict=False))
                 if pair[0] != pair[1]), min(len(one), len(other)))


@given(STEPS)
def test_the_common_end_is_where_the_logs_part(steps: list[tuple[str, int, int, int]]) -> None:
    begin = epochs.first("a/0", 0, 0)
    logs = [Log(f"a/{number}", [], begin) for number in range(3)]
    byte = 0
    masters = {0}
    for time, (step, who, other, count) in enumerate(steps, 1):
        mine, theirs = logs[who], logs[other]
        if step == "append" and who in masters:
            mine.content.extend(range(byte, byte + count))
            byte += count
        elif step == "promote":
            mine.history = mine.history.begun(len(mine.content), mine.name, time)
            masters.add(who)
        elif step == "follow" and who != other and other in masters:
            masters.discard(who)
            end = common_end(mine.history, len(mine.content), theirs.history, len(theirs.content))
            assert end is not None
            assert mine.content[:end] == theirs.content[:end]
            del mine.content[end:]
            mine.content.extend(theirs.content[end:end + count])
            mine.history = theirs.history
    for mine in logs:
        for theirs in logs:
            end = common_end(mine.history, len(mine.content), theirs.history, len(theirs.content))
            assert end == same_length(mine.content, theirs.content)


def test_two_logs_that_began_apart_have_nothing_in_common() -> None:
    mine, theirs = epochs.first("a/0", 0, 5), epochs.first("a/0", 0, 5)
    assert common_end(mine, 100, theirs, 100) is None


def test_two_that_were_promoted_at_the_same_place_part_there() -> None:
    begin = epochs.first("a/0", 0, 1)
    mine, theirs = begin.begun(100, "a/1", 7), begin.begun(100, "a/2", 7)
    assert common_end(mine, 150, theirs, 160) == 100


def test_a_table_comes_back_from_its_file(tmp_path: Path) -> None:
    assert epochs.read(tmp_path) is None
    history = epochs.first("broker-ü/0", 1 << 30, 17).begun(1 << 31, "broker-ü/1", 18)
    for told in (None, Told(Role.SYNC_MASTER, 0)):
        standing = Standing(history, State.PROMOTED, told)
        epochs.write(tmp_path, standing)
        assert epochs.read(tmp_path) == standing


def test_an_epoch_that_the_log_never_reached_is_forgotten_but_not_its_number() -> None:
    history = epochs.first("a/0", 0, 1).begun(500, "a/1", 2)
    mine = history.begun(400, "a/2", 3)
    assert [one.number for one in mine.epochs] == [1, 3]
    assert common_end(mine, 450, history, 600) == 400


def test_more_epochs_than_a_table_takes_are_joined_and_still_read() -> None:
    history = epochs.first("a/0", 0, 0)
    for number in range(epochs.EPOCHS_MAX + 10):
        history = history.begun(number * 10, "a/1", number)
    assert len(history.epochs) == epochs.EPOCHS_MAX
    assert history.epochs[0].start == 0
    assert history.last.number == epochs.EPOCHS_MAX + 11
    assert epochs.decode(epochs.encode(history)) == history


@pytest.mark.parametrize(("change", "says"), [
    ({"state": "sleeps"}, "expected one of leads"), ({"state": 1}, "expected one of leads"),
    ({"told": {"role": "king", "brokerId": 0}}, "expected a role and a brokerId"),
    ({"told": [1]}, "expected a role and a brokerId"),
])
def test_a_file_that_cannot_be_is_refused_by_its_name(
    tmp_path: Path, change: dict[str, object], says: str,
) -> None:
    (tmp_path / "epochs").write_text(json.dumps({**GOOD, "state": "leads", **change}))
    with pytest.raises(EpochsError, match=rf"epochs: .*{says}"):
        epochs.read(tmp_path)


def test_an_epoch_before_the_first_one_is_refused() -> None:
    with pytest.raises(EpochsError, match="starts at 100"):
        epochs.first("a/0", 100, 0).begun(99, "a/1", 1)


GOOD = json.loads(epochs.encode(History("0" * 32, (Epoch(1, 0, "a/0", 1), Epoch(2, 5, "a/1", 2)))))


@pytest.mark.parametrize(("change", "says"), [
    ({"version": 2}, "version 2: expected 1"),
    ({"logId": "xyz"}, "32 hexadecimal digits"),
    ({"logId": None}, "32 hexadecimal digits"),
    ({"epochs": []}, "a list of 1 to 1024"),
    ({"epochs": [7]}, r"epochs\[0\]: expected an object"),
    ({"epochs": [{**GOOD["epochs"][0], "number": 0}]}, r"epochs\[0\].number 0"),
    ({"epochs": [{**GOOD["epochs"][0], "start": -1}]}, r"epochs\[0\].start -1"),
    ({"epochs": [{**GOOD["epochs"][0], "start": True}]}, r"epochs\[0\].start True"),
    ({"epochs": [{**GOOD["epochs"][0], "start": 1 << 63}]}, r"epochs\[0\].start"),
    ({"epochs": [{**GOOD["epochs"][0], "master": ""}]}, r"epochs\[0\].master"),
    ({"epochs": GOOD["epochs"][::-1]}, "expected both to grow"),
])
def test_a_table_that_cannot_be_is_refused_with_its_field(
    change: dict[str, object], says: str,
) -> None:
    with pytest.raises(EpochsError, match=says):
        epochs.decode(json.dumps({**GOOD, **change}).encode())


@pytest.mark.parametrize("master", ["\u6f22" * 86, "\x1b[2J", "\ud800", "a\nb"])
def test_a_name_that_no_broker_has_is_refused(master: str) -> None:
    with pytest.raises(EpochsError, match=r"epochs\[0\].master"):
        epochs.decode(json.dumps({**GOOD, "epochs": [{**GOOD["epochs"][0], "master": master}]}
                                 ).encode())


@pytest.mark.parametrize("master", ["\u6f22" * 85, "\"" * 255, "a" * 255])
def test_the_longest_table_that_is_taken_can_be_written_and_read_again(
    tmp_path: Path, master: str,
) -> None:
    """Else a peer's table would be the last thing that a store was told."""
    number = epochs.PEERS_EPOCH_MAX - epochs.EPOCHS_MAX
    text = json.dumps({**GOOD, "epochs": [
        {"number": number + place + 1, "start": (1 << 62) + place, "master": master,
         "begunMs": 1 << 62} for place in range(epochs.EPOCHS_MAX)]}, ensure_ascii=False).encode()
    history = epochs.decode(text)
    promoted = Standing(history.begun(history.last.start, master, 1 << 62), State.LEADS)
    epochs.write(tmp_path, promoted)

    assert epochs.read(tmp_path) == promoted
    assert len(words(master, master, 1 << 30, promoted.history)) <= GREETING_WORDS_MAX


def test_an_epoch_that_none_can_come_behind_is_refused() -> None:
    with pytest.raises(EpochsError, match="expected at most"):
        epochs.decode(json.dumps({**GOOD, "epochs": [
            {**GOOD["epochs"][0], "number": epochs.NUMBER_MAX}]}).encode())


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b"1" * 5_000])
def test_what_is_no_table_is_refused(text: bytes) -> None:
    with pytest.raises(EpochsError):
        epochs.decode(text)


def test_tables_part_behind_their_last_common_epoch() -> None:
    mine = epochs.first("a/0", 0, 1)
    theirs = mine.begun(100, "b/1", 2)
    assert parted(theirs, mine) is None
    assert parted(mine, theirs) == (Branch(0, 1), Branch(1, 2))
    assert parted(mine.begun(90, "a/0", 3).begun(95, "a/0", 4), theirs.begun(120, "a/0", 5)) == (
        Branch(0, 3), Branch(2, 3))
    assert parted(mine, epochs.first("c/2", 0, 1, 7)) == (Branch(0, 1), Branch(0, 7))


def test_a_master_has_taken_over_where_it_followed_another_one() -> None:
    history = epochs.first("a/0", 0, 1).begun(100, "b/1", 2)
    assert history.taken_over == 100
    assert history.begun(150, "b/1", 3).begun(180, "b/1", 4).taken_over == 100
    assert history.begun(150, "a/0", 3).taken_over == 150


@pytest.mark.parametrize("number", [1, 2])
def test_an_epoch_with_a_number_that_was_given_begins_nowhere(number: int) -> None:
    history = epochs.first("a/1", 0, 1, 2)
    with pytest.raises(EpochsError, match=f"epoch {number} does not come behind the last one"):
        history.begun(10, "b/2", 2, number)
    assert history.begun(10, "b/2", 2, 3).last.number == 3
