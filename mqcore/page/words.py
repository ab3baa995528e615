"""
The page's words: English in small letters is the key, other languages stand in tables.

A word that a table lacks is shown in English; tests/page holds that none is lacking.
"""
from __future__ import annotations

from collections.abc import Callable

from mqcore.page.words_zh import CHINESE

LANGUAGES = {"en": "English", "zh": "中文"}
TABLES: dict[str, dict[str, str]] = {"en": {}, "zh": CHINESE}


def chosen(wanted: str, accepted: str) -> str:
    """The language of a query or cookie, else the first of Accept-Language that there is."""
    if wanted in LANGUAGES:
        return wanted
    for entry in accepted[:200].split(","):
        language = entry.partition(";")[0].strip().lower().partition("-")[0]
        if language in LANGUAGES:
            return language
    return "en"


def translator(language: str) -> Callable[[str], str]:
    """English -> this language."""
    table = TABLES[language]
    return lambda text: table.get(text.lower(), text)
