"""
Puts all mutants of a file into it, each behind a look at MQCORE_MUTANT: one build has them all,
and a run of tests chooses one.

A mutated condition of `if`, `elif` and `while` becomes a choice between conditions, a declaration
with a value one between values, any other statement a block of `if` and `else`.
"""
from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tests.mutants.catalogue import Mutant, MutantError

VARIABLE = "MQCORE_MUTANT"
STRING = re.compile(r'''"{3}|'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|'''
                    r"#[^\n]*|[(\[{]|[)\]}]|\\\n|\n")
HEADER = re.compile(r"(\s*)(if|elif|while)\b(.*):[ \t]*(?:#[^\n]*)?\n", re.S)
DECLARED = re.compile(r"(\s*cdef [^=(]*?)=(?!=)(.*?)(?:  #[^\n]*)?\n", re.S)
LATER = re.compile(r"\s*(?:else|elif|except|finally|case)\b")
FIRST = re.compile(r"(?m)^(?!from __future__)(?:from|import|cimport|cdef|cpdef|def|class|@)")
NATIVE = '''\
cdef extern from *:
    """
    #ifndef MQ_MUTANT
    #define MQ_MUTANT
    #include <stdlib.h>
    static int mq_mutant(void) {
        static int number = -1;
        if (number < 0) {
            const char* text = getenv("%s");
            number = text ? atoi(text) : 0;
        }
        return number;
    }
    #endif
    """
    int %s "mq_mutant"() noexcept nogil

'''


class Span(NamedTuple):
    """Lines [first, end) of a file, and the mutants in them."""

    first: int
    end: int
    mutants: tuple[Mutant, ...]


def statements(text: str) -> list[tuple[int, int]]:
    """The lines of each statement, [first, end), in Python or Cython; a blank line is one, too."""
    found = []
    depth = at = line = first = 0
    while at < len(text) and (match := STRING.search(text, at)):
        token, at = match[0], match.end()
        if token in ('"""', "'''"):
            end = text.index(token, at)
            line += text.count("\n", at, end)
            at = end + 3
        elif token == "\\\n":
            line += 1
        elif token == "\n":
            line += 1
            if depth == 0:
                found.append((first, line))
                first = line
        elif token in "([{":
            depth += 1
        elif token in ")]}":
            depth -= 1
    return found


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def span_of(mutant: Mutant, rows: Sequence[tuple[int, int]], lines: Sequence[str],
            text: str) -> Span:
    """The statements that it changes."""
    start, end = mutant.place(text)
    first = text.count("\n", 0, start)
    last = text.count("\n", 0, start + len(text[start:end].rstrip("\n")))
    touched = [row for row in rows if row[0] <= last and first < row[1]]
    margin = indent(lines[touched[0][0]])
    if any(lines[row[0]].strip() and indent(lines[row[0]]) < margin for row in touched):
        raise MutantError(f"{mutant}: it begins in a block and ends behind it")
    span = Span(touched[0][0], touched[-1][1], (mutant,))
    if header(span, lines, text) is None:
        span = whole(span, rows, lines)
    return span


def whole(span: Span, rows: Sequence[tuple[int, int]], lines: Sequence[str]) -> Span:
    """With all that belongs to the statements: bodies, and branches behind them."""
    margin = indent(lines[span.first])
    end = span.end
    for first, after in rows:
        if first < span.end:
            continue
        line = lines[first]
        if not line.strip():
            continue
        if not (indent(line) > margin or (indent(line) == margin and LATER.match(line))):
            break
        end = after
    return span._replace(end=end)


def texts(span: Span, lines: Sequence[str], text: str) -> tuple[str, list[str]]:
    """The original text of a span, and that of each mutant."""
    offset = sum(map(len, lines[:span.first]))
    original = "".join(lines[span.first:span.end])
    changed = []
    for mutant in span.mutants:
        start, end = mutant.place(text)
        changed.append(original[:start - offset] + mutant.new + original[end - offset:])
    return original, changed


def header(span: Span, lines: Sequence[str], text: str) -> list[re.Match[str]] | None:
    """The original and each mutant as a condition; None: they are something else."""
    original, changed = texts(span, lines, text)
    found = [HEADER.fullmatch(one) for one in (original, *changed)]
    matches = [one for one in found if one is not None]
    if len(matches) != len(found) or len({one[2] for one in matches}) != 1:
        return None
    if len(statements(original)) != 1:
        return None
    return matches


def merged(spans: list[Span], rows: Sequence[tuple[int, int]], lines: Sequence[str],
           text: str) -> list[Span]:
    done: list[Span] = []
    for span in sorted(spans, key=lambda one: one[:2]):
        while done and done[-1].end > span.first:
            before = done.pop()
            span = Span(before.first, max(before.end, span.end), before.mutants + span.mutants)
            if header(span, lines, text) is None:
                span = whole(span, rows, lines)
        done.append(span)
    return done


def switched(text: str, mutants: Sequence[Mutant], name: str) -> str:
    """The text of a file with all of its mutants in it; name: of what says which one is on."""
    native = mutants[0].native
    lines = text.splitlines(keepends=True)
    rows = statements(text)
    spans = merged([span_of(one, rows, lines, text) for one in mutants], rows, lines, text)
    made = lines.copy()
    for span in reversed(spans):
        made[span.first:span.end] = [choice(span, lines, text, name)]
    result = "".join(made)
    if native:
        place = FIRST.search(result)
        if place is None:
            raise MutantError(f"{mutants[0].file}: no statement is there")
        result = result[:place.start()] + NATIVE % (VARIABLE, name) + result[place.start():]
    return result


def choice(span: Span, lines: Sequence[str], text: str, name: str) -> str:
    native = span.mutants[0].native
    original, changed = texts(span, lines, text)
    tests = [f"{name}() == {one.number}" if native else
             f'__import__("os").environ.get("{VARIABLE}") == "{one.number}"'
             for one in span.mutants]
    conditions = header(span, lines, text)
    if conditions is not None:
        bint = "<bint>" if native else ""
        chosen = f"{bint}({conditions[0][3].strip()})"
        for test, one in zip(tests, conditions[1:], strict=True):
            chosen = f"{bint}({one[3].strip()}) if {test} else ({chosen})"
        return f"{conditions[0][1]}{conditions[0][2]} ({chosen}):\n"
    declared = [DECLARED.fullmatch(one) for one in (original, *changed)]
    values = [one for one in declared if one is not None and len(statements(one[0])) == 1]
    if len(values) == len(declared) and len({one[1] for one in values}) == 1:
        chosen = values[0][2].strip()
        for test, one in zip(tests, values[1:], strict=True):
            chosen = f"({one[2].strip()}) if {test} else ({chosen})"
        return f"{values[0][1]}= ({chosen})\n"
    if LATER.match(original):
        raise MutantError(f"{span.mutants[0]}: it changes a branch without its `if`")
    margin = " " * indent(lines[span.first])
    blocks = []
    for word, test, block in zip(["if", *["elif"] * (len(tests) - 1), "else"], [*tests, ""],
                                 [*changed, original], strict=True):
        body = block if block.strip() else f"{margin}pass\n"
        moved = "".join(f"    {line}" if line.strip() else line
                        for line in body.splitlines(keepends=True))
        blocks.append(f"{margin}{f'{word} {test}'.rstrip()}:\n{moved}")
    return "".join(blocks)
