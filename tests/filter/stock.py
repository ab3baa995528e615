"""
Asks the stock broker's own SQL92 filter, as a black box (java/Evaluate.java).

    python -m tests.filter.stock CHOSEN.json      # writes tests/golden/filter/answers.jsonl.gz anew

CHOSEN.json: a list of [expression, {property: value}] to ask besides random ones; without it the
chosen cases of the present file are asked again.
"""
from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from tests.filter.generate import Generator
from tests.support.stock import SHORT_LIVED, java_classes, stock_classpath

RECORDED = Path(__file__).parent.parent / "golden" / "filter" / "answers.jsonl.gz"
SOURCE = Path(__file__).parent / "java" / "Evaluate.java"
RANDOM_COUNT = 2_500
RANDOM_SEED = 20_261_121
JAVA_TIMEOUT_S = 90

Case = tuple[str, dict[str, str]]


def ask(cases: Sequence[Case]) -> list[str]:
    """One letter for each case: R refused, T true, F false, N null, X raised, O something else."""
    classpath = stock_classpath()
    lines = "".join("\t".join(text.encode().hex() for text in (
        expression, *(text for item in properties.items() for text in item))) + "\n"
        for expression, properties in cases)
    classes = java_classes(SOURCE, classpath)
    done = subprocess.run(
        ["java", "-Xmx256m", *SHORT_LIVED, "-cp", f"{classes}{os.pathsep}{classpath}", "Evaluate"],
        input=lines, capture_output=True, text=True, check=True, timeout=JAVA_TIMEOUT_S)
    answers = done.stdout.split()
    if len(answers) != len(cases):
        raise RuntimeError(f"stock filter: expected {len(cases)} answers, got {len(answers)}")
    return answers


def random_cases(random: Random, count: int) -> Iterator[Case]:
    """`count` expressions with two messages each, and as many heaps of tokens."""
    generator = Generator(random)
    for _ in range(count):
        expression = generator.text(generator.tree())
        yield expression, generator.properties()
        yield expression, generator.properties()
        yield generator.soup(), generator.properties()


def recorded() -> list[tuple[str, dict[str, str], str, str]]:
    """(expression, properties, answer, chosen or random) of each recorded case."""
    with gzip.open(RECORDED, "rt", encoding="utf-8") as lines:
        return [tuple(json.loads(line)) for line in lines]


def record(chosen: Sequence[Case]) -> None:
    """Asks the stock filter and writes the file of recorded answers."""
    cases = [(*case, "chosen") for case in chosen]
    cases += [(*case, "random") for case in random_cases(Random(RANDOM_SEED), RANDOM_COUNT)]
    answers = ask([case[:2] for case in cases])
    text = "".join(json.dumps([expression, properties, answer, origin], ensure_ascii=False) + "\n"
                   for (expression, properties, origin), answer in zip(cases, answers, strict=True))
    RECORDED.parent.mkdir(parents=True, exist_ok=True)
    RECORDED.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        record([tuple(case) for case in json.loads(Path(sys.argv[1]).read_text())])
    else:
        record([(case[0], case[1]) for case in recorded() if case[3] == "chosen"])
