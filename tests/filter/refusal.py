"""Compiling what may be refused."""
from __future__ import annotations

from mqcore.filter.sql92_compiler import compile_program
from mqcore.wire.sql92_tokens import SqlError


def program_or_refusal(expression: str) -> bytes | SqlError:
    """The program of an expression, or its refusal, whose position must be inside the text."""
    try:
        return compile_program(expression)
    except SqlError as error:
        refusal = error
    assert 0 <= refusal.position <= len(expression)
    assert str(refusal.position) in str(refusal)
    assert refusal.expected
    return refusal
