"""HMAC-SHA1 of the serving path against Python's, with and without the processor's instructions."""
from __future__ import annotations

import base64
import hashlib
import hmac
import random
from collections.abc import Generator

import pytest

from mqcore.acl.rules import SIGNED_AT_ONCE, signature_in_turns
from mqcore.shm.access import signature_for_test, whole_signature_for_test


@pytest.mark.parametrize("plain", [False, True])
def test_every_length_around_blocks_and_every_cut_gives_the_digest_of_python(plain: bool):
    chance = random.Random(1)
    for length in [*range(200), 1000, 4096, 100_003]:
        secret, text = chance.randbytes(chance.randrange(1, 150)), chance.randbytes(length)
        cuts = sorted(chance.randrange(length + 1) for _ in range(4))
        parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, length], strict=True)]
        assert signature_for_test(secret, parts, plain) == hmac.new(
            secret, text, hashlib.sha1).digest()


@pytest.mark.parametrize("plain", [False, True])
def test_a_text_in_one_piece_of_every_length_gives_the_digest_of_python(plain: bool):
    chance = random.Random(3)
    for length in [*range(301), *(chance.randrange(301, 5000) for _ in range(100))]:
        secret, text = chance.randbytes(chance.randrange(1, 150)), chance.randbytes(length)
        assert whole_signature_for_test(secret, text, plain) == hmac.new(
            secret, text, hashlib.sha1).digest()


def test_the_vectors_of_rfc_2202():
    assert signature_for_test(b"Jefe", [b"what do ya want for nothing?"]).hex() == (
        "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79")
    text = b"Test Using Larger Than Block-Size Key - Hash Key First"
    assert signature_for_test(b"\xaa" * 80, [text]).hex() == (
        "aa4ae5e15272d00e95705637ce8a3b55ed402112")


@pytest.mark.parametrize("more", [-1, 0, 1, SIGNED_AT_ONCE + 7])
def test_long_bodies_are_signed_with_pauses_and_whole(more: int):
    body = random.Random(2).randbytes(2 * SIGNED_AT_ONCE + more)
    given = []

    def signing() -> Generator[None, None, None]:
        given.append((yield from signature_in_turns("secret", {"b": "2", "a": "1", "c": None},
                                                    body)))

    pauses = len(list(signing()))
    expected = hmac.new(b"secret", b"12null" + body, hashlib.sha1).digest()
    assert given == [base64.b64encode(expected)]
    assert pauses == (len(body) - 1) // SIGNED_AT_ONCE
