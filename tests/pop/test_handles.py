"""Receipt handles keep the rules RH1 and RH2 of mqcore/store/pop/handles.pxd."""
from __future__ import annotations

import pytest

import tests.support.dice as throw
from mqcore.store.probes.pop_probe import receipt_fields, receipt_text

SEEN = b"1 1795330021030 10000 2 0 broker-s 0 1 88753"
FIELDS = ((1, 1795330021030, 10_000, 2, 0), b"broker-s", (0, 1, 88_753))


def test_a_handle_is_stocks_text() -> None:
    assert receipt_text(*FIELDS) == SEEN
    assert receipt_fields(SEEN) == FIELDS


def test_a_handle_of_remoting_has_no_log_position() -> None:
    assert receipt_text(FIELDS[0], FIELDS[1], (0, 1, -1)) == SEEN.rpartition(b" ")[0]
    assert receipt_fields(SEEN.rpartition(b" ")[0]) == (FIELDS[0], FIELDS[1], (0, 1, -1))


def test_every_handle_is_read_as_it_was_written() -> None:
    dice = throw.dice()
    for _ in range(throw.times(3_000)):
        fields = (
            (throw.whole(dice, 0, 1 << 62), throw.whole(dice, 0, 1 << 53),
             throw.whole(dice, 0, 43_200_000), dice.randint(0, 999), dice.randint(0, 2)),
            dice.randbytes(dice.randint(1, 255)).replace(b" ", b"-"),
            (dice.randint(0, 65_534), throw.whole(dice, 0, 1 << 62),
             throw.whole(dice, -1, 1 << 62)))
        assert receipt_fields(receipt_text(*fields)) == fields


@pytest.mark.parametrize("text", [
    b"", b" ", b"1", SEEN[:-7], SEEN + b" ", b" " + SEEN, SEEN + b" 1",
    SEEN.replace(b" ", b"  ", 1),
    SEEN.replace(b" 0 broker", b" 3 broker"), SEEN.replace(b"broker-s", b""),
    SEEN.replace(b"broker-s", b"b" * 256), SEEN.replace(b"10000", b"43200001"),
    SEEN.replace(b"10000", b"-1"), SEEN.replace(b"10000", b"+1"), SEEN.replace(b"10000", b"1e4"),
    SEEN.replace(b" 0 1 ", b" 65535 1 "), SEEN.replace(b" 0 1 ", b" -1 1 "),
    SEEN.replace(b"1795330021030", b"9007199254740993"),
    SEEN.replace(b"88753", b"4611686018427387905"), SEEN.replace(b"88753", b"9" * 40),
    SEEN.replace(b"88753", b"18446744073709551617"), SEEN.replace(b"88753", b"88753\n"),
    SEEN.replace(b"88753", "８８７５３".encode()), SEEN + b"\0", b"0" * 9000])
def test_a_text_that_is_no_handle_is_refused(text: bytes) -> None:                        # RH1
    assert receipt_fields(text) is None


def test_any_change_of_a_handle_is_refused_or_another_one() -> None:
    dice = throw.dice()
    for _ in range(throw.times(5_000)):
        text = bytearray(SEEN)
        for _ in range(dice.randint(1, 3)):
            at = dice.randrange(len(text))
            text[at:at + dice.randint(0, 2)] = dice.choice(
                (b"", b" ", b"0", b"9" * 20, b"-", b"\xff", b"x"))
        fields = receipt_fields(bytes(text))
        if fields is not None:
            written = receipt_fields(receipt_text(*fields))
            assert written == fields
