"""
The delay levels of the broker: what `broker.message_delay_levels` says, in milliseconds.

RocketMQ 4.9.8: ScheduleMessageService.parseDelayLevel (store.md 2.12). Who stores a delayed message
caps its level; the dispatcher writes the delivery time into its queue entry for the scheduler.
"""
from __future__ import annotations

import re

LEVEL_COUNT_MAX = 64            # DELAY_LEVEL_MAX of mqcore/layout.pxd: shared memory has so many
DELAY_MS_MAX = 10 * 366 * 24 * 3_600_000
TEXT_LENGTH_MAX = 2_048         # blanks count: shared memory has room for it beside all others
UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"([0-9]{1,18})([smhd])", re.ASCII)


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """
    The delays of level 1, 2, ... in milliseconds.

    text: durations separated by blanks, each a whole number and a unit: s, m, h or d. Raises
    ValueError that names the level and what was expected; at least one level, at most
    LEVEL_COUNT_MAX, none longer than ten years, TEXT_LENGTH_MAX characters in all.
    """
    if len(text) > TEXT_LENGTH_MAX:
        raise ValueError(f"at most {TEXT_LENGTH_MAX} characters, not {len(text)}")
    words = text.split()
    if not 1 <= len(words) <= LEVEL_COUNT_MAX:
        raise ValueError(f"1 to {LEVEL_COUNT_MAX} delay levels, not {len(words)}")
    return tuple(_delay_ms(level, word) for level, word in enumerate(words, start=1))


def capped_level(level: int, levels: tuple[int, ...]) -> int:
    """A message's level, lowered to the highest that there is; 0 and less: it is not delayed."""
    return min(level, len(levels))


def _delay_ms(level: int, word: str) -> int:
    match = _LEVEL.fullmatch(word)
    if match is None:
        raise ValueError(f'level {level} as a whole number and s, m, h or d, not "{word[:40]}"')
    delay_ms = int(match[1]) * UNIT_MS[match[2]]
    if delay_ms > DELAY_MS_MAX:
        raise ValueError(f'level {level} of at most ten years, not "{word}"')
    return delay_ms
