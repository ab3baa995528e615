"""docs/compatibility.md says what the table of differences says."""
from __future__ import annotations

import re

from tests.wire_live import differences


def test_the_document_has_the_table_of_differences_word_for_word() -> None:
    text = differences.DOCUMENT.read_text(encoding="utf-8")
    found = re.search(
        rf"^{re.escape(differences.TITLE)}\n.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )

    assert found is not None
    assert found[0].strip() == differences.section().strip()


def test_every_difference_has_a_subject_of_its_own_and_a_reason() -> None:
    assert len(differences.BY_SUBJECT) == len(differences.TABLE)
    assert all(row.stock and row.ours and row.reason for row in differences.TABLE)
