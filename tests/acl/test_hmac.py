"""HMAC-SHA1 of the serving path against Python's, with and without the processor's instructions."""
from __future__ import annotations

import hashlib
import hmac
import random

import pytest

from mqcore.shm.access import signature_for_test


@pytest.mark.parametrize("plain", [False, True])
def test_every_length_around_blocks_and_every_cut_gives_the_digest_of_python(plain: bool):
    chance = random.Random(1)
    for length in [*range(200), 1000, 4096, 100_003]:
        secret, text = chance.randbytes(chance.randrange(1, 150)), chance.randbytes(length)
        cuts = sorted(chance.randrange(length + 1) for _ in range(4))
        parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, length], strict=True)]
        assert signature_for_test(secret, parts, plain) == hmac.new(
            secret, text, hashlib.sha1).digest()


def test_the_vectors_of_rfc_2202():
    assert signature_for_test(b"Jefe", [b"what do ya want for nothing?"]).hex() == (
        "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79")
    text = b"Test Using Larger Than Block-Size Key - Hash Key First"
    assert signature_for_test(b"\xaa" * 80, [text]).hex() == (
        "aa4ae5e15272d00e95705637ce8a3b55ed402112")
