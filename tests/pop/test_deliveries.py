"""The state of POP keeps the rules PO1 to PO10 of mqcore/store/pop/pop.pxd, by single cases."""
from __future__ import annotations

import pytest

from mqcore.store.probes.pop_probe import PopProbe
from tests.pop.desk import (
    BLOCKED,
    EXPIRED,
    FULL,
    ILLEGAL,
    KEY,
    NOTHING,
    OK,
    OTHER,
    STALE,
    START,
    UNKNOWN,
    Key,
    later,
    offsets,
    receive,
)


@pytest.fixture
def pop() -> PopProbe:
    made = PopProbe()
    assert made.open(KEY)
    return made


@pytest.fixture
def fifo() -> PopProbe:
    made = PopProbe()
    assert made.open(KEY, fifo=True)
    return made


def test_each_message_is_delivered_once_while_it_is_invisible(pop: PopProbe) -> None:
    assert offsets(receive(pop, count=3)) == [0, 1, 2]
    assert offsets(receive(pop, count=2)) == [3, 4]
    assert pop.offsets(KEY) == (0, 5, [0, 1, 2, 3, 4])


def test_a_message_is_visible_at_its_due_time_and_not_before(pop: PopProbe) -> None:      # PO2
    receive(pop, count=1, invisible_ms=500)
    assert pop.next_due() == 10_500
    assert pop.expire(later(499)) == 0
    assert offsets(receive(pop, later(499), end=1)) == []
    assert pop.expire(later(500)) == 1
    assert pop.woken() == [KEY]
    assert receive(pop, later(500), end=1)[0][3] == 2


@pytest.mark.parametrize("step", [-10**9, 10**9])
def test_a_step_of_the_wall_clock_shows_nothing_early_or_late(pop: PopProbe, step: int) -> None:
    first = receive(pop, count=1, invisible_ms=500)[0]
    at = (10_499, START[1] + step)
    assert pop.expire(at) == 0
    assert pop.expire((10_500, START[1] + step)) == 1
    second = receive(pop, (10_500, START[1] + step), end=1)[0]
    assert second[1] > first[1]                                                            # PO3


def test_an_old_name_of_a_delivery_settles_nothing(pop: PopProbe) -> None:                # PO3
    first = receive(pop, count=1, invisible_ms=500)[0]
    pop.expire(later(500))
    at = (10_500, START[1])            # the wall clock stands still
    second = receive(pop, at, end=1)[0]
    assert second[:2] != first[:2]
    assert pop.ack(KEY, first, at) == STALE
    assert pop.ack(KEY, first, later(500)) == EXPIRED
    assert pop.offsets(KEY)[2] == [0]
    assert pop.ack(KEY, second, at) == OK
    assert pop.offsets(KEY) == (1, 1, [])


def test_a_late_ack_counts_while_the_message_has_not_been_delivered_again(pop: PopProbe) -> None:
    claim = receive(pop, count=1, invisible_ms=500)[0]
    pop.expire(later(10_000))
    assert pop.ack(KEY, claim, later(10_000)) == OK
    assert offsets(receive(pop, later(10_000), count=1)) == [1]


def test_acks_of_what_is_settled_or_unknown_have_their_outcomes(pop: PopProbe) -> None:
    claim = receive(pop, count=1, invisible_ms=500)[0]
    assert pop.ack(KEY, claim, START) == OK
    assert pop.ack(KEY, claim, START) == STALE
    assert pop.ack(KEY, claim, later(500)) == EXPIRED
    assert pop.ack(KEY, (7, claim[1], 500, 1, False), START) == UNKNOWN
    assert pop.ack(KEY, (-1, claim[1], 500, 1, False), START) == UNKNOWN


def test_what_is_ready_again_comes_before_what_is_new(pop: PopProbe) -> None:             # PO4
    receive(pop, count=3, invisible_ms=100)
    pop.expire(later(100))
    got = receive(pop, later(100), count=5)
    assert [(claim[0], claim[3]) for claim in got] == [(0, 2), (1, 2), (2, 2), (3, 1), (4, 1)]


def test_a_change_gives_a_new_name_and_another_due_time(pop: PopProbe) -> None:
    claim = receive(pop, count=1, invisible_ms=500)[0]
    outcome, new = pop.change(KEY, claim, 2_000, START)
    assert outcome == OK
    assert new[0] == 0
    assert new[1] > claim[1]
    assert new[2:4] == (2_000, 1)
    assert pop.ack(KEY, claim, START) == STALE
    assert pop.change(KEY, claim, 2_000, START)[0] == STALE
    assert pop.expire(later(1_999)) == 0
    assert pop.expire(later(2_000)) == 1


def test_a_change_to_zero_shows_the_message_at_once(pop: PopProbe) -> None:
    claim = receive(pop, count=1)[0]
    assert pop.woken() == []
    assert pop.change(KEY, claim, 0, START)[0] == OK
    assert pop.woken() == [KEY]
    again = receive(pop, count=1)[0]
    assert (again[0], again[3]) == (0, 2)
    assert again[1] > claim[1]


@pytest.mark.parametrize("wrong", [-1, 43_200_001, 1 << 62])
def test_an_invisible_time_out_of_bounds_is_refused(pop: PopProbe, wrong: int) -> None:
    claim = receive(pop, count=1)[0]
    assert pop.change(KEY, claim, wrong, START)[0] == ILLEGAL
    assert pop.ack(KEY, claim, START) == OK


def test_more_deliveries_than_allowed_are_told(pop: PopProbe) -> None:                    # PO5
    at = START
    told = []
    for _ in range(4):
        told.append(receive(pop, at, end=1, invisible_ms=10, attempts_max=3)[0][3:])
        at = later(10, at)
        pop.expire(at)
    assert told == [(1, False), (2, False), (3, False), (4, True)]
    pop.settle(KEY, 0)
    assert pop.offsets(KEY) == (1, 1, [])


def test_what_a_filter_leaves_out_is_settled(pop: PopProbe) -> None:
    pop.batch(START)
    pop.enter(KEY)
    pop.settle(KEY, pop.peek(KEY, 1000), looked=True)
    pop.settle_new(KEY, 7)
    assert pop.take(KEY, pop.peek(KEY, 1000)) == (7, START[1], 1000, 1, False)
    assert pop.offsets(KEY) == (7, 8, [7])


def test_the_committed_offset_is_the_lowest_unsettled_one(pop: PopProbe) -> None:         # PO8
    claims = receive(pop, count=3)
    assert pop.commits() == {KEY: 0}
    pop.ack(KEY, claims[1], START)
    assert pop.commits() == {}
    pop.ack(KEY, claims[0], START)
    assert pop.commits() == {KEY: 2}
    pop.ack(KEY, claims[2], START)
    assert pop.commits() == {KEY: 3}


def test_a_queue_at_its_limit_gets_no_new_message_and_still_its_old_ones(pop: PopProbe) -> None:
    claims = []
    while got := receive(pop, end=20_000):
        claims += got
    assert len(claims) == 10_000
    pop.batch(START)
    pop.enter(KEY)
    assert pop.peek(KEY, 20_000) == FULL
    pop.expire(later(1000))
    pop.woken()
    assert offsets(receive(pop, later(1000), count=2, end=20_000)) == [0, 1]
    pop.ack(KEY, claims[9_999], later(1000))
    assert pop.woken() == [KEY]
    assert pop.check()


def test_the_last_eighth_of_the_memory_is_for_queues_with_few_messages() -> None:         # PO9
    pop = PopProbe(messages_max=800)
    pop.open(KEY)
    pop.open(OTHER)
    got = []
    while part := receive(pop, end=10_000):
        got += part
    assert len(got) == 700
    assert len(receive(pop, key=OTHER, count=100)) == 64
    assert pop.check()


@pytest.mark.parametrize("life", [0, 1])
def test_another_life_of_group_or_topic_has_no_state(pop: PopProbe, life: int) -> None:      # PO10
    claim = receive(pop, count=1)[0]
    pop.open(KEY, life=life, start=5)
    assert pop.ack(KEY, claim, START) == (OK if life == 0 else STALE)
    assert offsets(receive(pop, count=1)) == [1 if life == 0 else 5]


def test_offsets_that_the_queue_does_not_have_are_forgotten(pop: PopProbe) -> None:       # PO10
    receive(pop, count=10)
    pop.open(KEY, least=3, end=8)
    assert pop.offsets(KEY) == (3, 8, [3, 4, 5, 6, 7])


@pytest.mark.parametrize(("offset", "then"), [
    (6, (6, 10, [6, 7, 8, 9])), (20, (20, 20, [])), (2, (2, 2, [])),
    (4, (4, 10, [4, 5, 6, 7, 8, 9]))])
def test_an_offset_that_others_set_counts(pop: PopProbe, offset: int,
                                          then: tuple[int, int, list[int]]) -> None:
    claims = receive(pop, count=10)
    for claim in claims[:4]:
        pop.ack(KEY, claim, START)
    pop.moved(KEY, offset)
    assert pop.offsets(KEY) == then


def test_a_client_that_went_gives_its_messages_back_in_a_second(pop: PopProbe) -> None:      # PO7
    client, other = pop.client_open(), pop.client_open()
    receive(pop, count=3, client=client, invisible_ms=60_000)
    receive(pop, count=1, client=other, invisible_ms=60_000)
    assert pop.client_close(client, START, most=2)
    assert not pop.client_close(client, START, most=2)
    assert pop.expire(later(999)) == 0
    assert pop.expire(later(1000)) == 3
    assert sorted(offsets(receive(pop, later(1000), end=4))) == [0, 1, 2]
    assert pop.check()


def test_an_answer_that_was_not_written_comes_again_in_a_second(pop: PopProbe) -> None:
    claim = receive(pop, count=1, invisible_ms=60_000)[0]
    pop.drop(KEY, claim, START)
    assert pop.next_due() == 11_000
    assert pop.ack(KEY, claim, START) == OK


def test_a_renewed_message_is_held_for_three_hours_by_a_live_client(pop: PopProbe) -> None:  # PO7
    client = pop.client_open()
    receive(pop, end=1, client=client, invisible_ms=60_000, renew=True)
    for minute in range(1, 180):
        assert pop.expire(later(60_000 * minute)) == 1
        assert pop.peek(KEY, 1) == NOTHING
    assert pop.woken() == []
    assert pop.expire(later(10_800_000)) == 1
    assert pop.woken() == [KEY]


def test_a_renewed_message_of_no_client_is_visible_when_it_is_due(pop: PopProbe) -> None:
    receive(pop, end=1, invisible_ms=60_000, renew=True)
    pop.expire(later(60_000))
    assert pop.woken() == [KEY]


# -- FIFO ------------------------------------------------------------------------------------------


def test_fifo_gives_one_batch_at_a_time(fifo: PopProbe) -> None:                          # PO6
    batch = receive(fifo, count=3, attempt=b"one")
    assert offsets(batch) == [0, 1, 2]
    fifo.batch(START, attempt=b"two")
    assert fifo.enter(KEY) == BLOCKED
    for claim in batch[:2]:
        fifo.ack(KEY, claim, START)
    assert fifo.enter(KEY) == BLOCKED
    assert fifo.woken() == []
    fifo.ack(KEY, batch[2], START)
    assert fifo.woken() == [KEY]
    assert offsets(receive(fifo, count=3, attempt=b"two")) == [3, 4, 5]


def test_fifo_gives_the_same_batch_for_the_same_attempt(fifo: PopProbe) -> None:          # PO5, PO6
    first = receive(fifo, count=3, attempt=b"one")
    again = receive(fifo, later(5), count=3, attempt=b"one")
    assert [claim[0::3] for claim in again] == [(0, 1), (1, 1), (2, 1)]
    assert fifo.ack(KEY, first[0], later(5)) == STALE
    assert fifo.ack(KEY, again[0], later(5)) == OK
    rest = receive(fifo, later(6), count=3, attempt=b"one")
    assert [claim[0::3] for claim in rest] == [(1, 1), (2, 1)]


def test_fifo_begins_again_at_the_first_unacknowledged_message(fifo: PopProbe) -> None:  # PO5, PO6
    batch = receive(fifo, count=4, invisible_ms=100, attempt=b"one")
    fifo.ack(KEY, batch[1], START)
    fifo.expire(later(100))
    got = receive(fifo, later(100), count=4, attempt=b"two")
    assert [claim[0::3] for claim in got] == [(0, 2), (2, 2), (3, 2), (4, 1)]


def test_fifo_change_keeps_the_name_and_blocks_until_the_new_time(fifo: PopProbe) -> None:
    claim = receive(fifo, count=1, invisible_ms=100)[0]
    outcome, new = fifo.change(KEY, claim, 700, START)
    assert (outcome, new[1]) == (OK, claim[1])
    fifo.expire(later(699))
    fifo.batch(later(699))
    assert fifo.enter(KEY) == BLOCKED
    fifo.expire(later(700))
    assert fifo.woken() == [KEY]


def test_fifo_passes_over_what_a_filter_leaves_out(fifo: PopProbe) -> None:
    receive(fifo, count=3, invisible_ms=100)
    fifo.expire(later(100))
    fifo.batch(later(100))
    fifo.enter(KEY)
    fifo.settle(KEY, fifo.peek(KEY, 1000), looked=True)
    taken = [fifo.take(KEY, fifo.peek(KEY, 4)) for _ in range(3)]
    assert [claim and claim[0] for claim in taken] == [1, 2, 3]
    assert fifo.peek(KEY, 4) == NOTHING


@pytest.mark.parametrize("attempt", [b"", b"x" * 65])
def test_an_attempt_without_a_usable_id_is_a_new_one(fifo: PopProbe, attempt: bytes) -> None:
    receive(fifo, count=1, attempt=attempt)
    fifo.batch(START, attempt=attempt)
    assert fifo.enter(KEY) == BLOCKED


# -- limits of queues and clients ------------------------------------------------------------------


def test_more_queues_than_there_may_be_need_one_that_is_settled_and_told() -> None:
    pop = PopProbe(queue_max=2)
    assert pop.open(KEY)
    assert pop.open(OTHER)
    third: Key = (b"group", b"topic", 2)
    assert not pop.open(third)
    receive(pop, count=1)
    pop.commits()
    assert pop.open(third)
    assert pop.has(KEY)
    assert not pop.has(OTHER)
    assert not pop.open(OTHER)


@pytest.mark.parametrize("key", [
    (b"", b"topic", 0), (b"g" * 256, b"topic", 0), (b"group", b"", 0), (b"group", b"t" * 128, 0),
    (b"group", b"a/b", 0), (b"group", b"topic", -1), (b"group", b"topic", 65_535)])
def test_names_out_of_bounds_have_no_state(key: Key) -> None:
    assert not PopProbe().open(key)


def test_deleted_groups_and_topics_are_forgotten() -> None:
    pop = PopProbe()
    for key in (KEY, OTHER, (b"group", b"topi", 0), (b"groups", b"topic", 0)):
        pop.open(key)
    pop.forget_group(b"groups")
    pop.forget_topic(b"topic")
    keys = KEY, OTHER, (b"group", b"topi", 0), (b"groups", b"topic", 0)
    assert [pop.has(key) for key in keys] == [False, False, True, False]


def test_there_are_as_many_clients_as_there_may_be() -> None:
    pop = PopProbe()
    clients = [pop.client_open() for _ in range(65_536)]
    assert sorted(clients) == list(range(65_536))
    assert pop.client_open() == -1
    pop.client_close(77, START)
    assert pop.client_open() == 77
