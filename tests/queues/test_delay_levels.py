"""Delay levels are read from text, and what cannot be meant is refused at the start."""
import re
from pathlib import Path

import pytest

from mqcore.broker.settings.delay_levels import LEVEL_COUNT_MAX, capped_level, parse_delay_levels
from mqcore.broker.settings.load import load
from mqcore.broker.settings.model import Settings, SettingsError

LAYOUT = Path(__file__).parents[2] / "mqcore" / "layout.pxd"


def test_the_default_levels_are_the_eighteen_of_stock():
    levels = Settings().delay_levels_ms
    assert len(levels) == 18
    assert levels[:5] == (1_000, 5_000, 10_000, 30_000, 60_000)
    assert levels[-2:] == (3_600_000, 7_200_000)


def test_every_unit_is_read():
    assert parse_delay_levels(" 2s  3m 4h\t5d ") == (2_000, 180_000, 14_400_000, 432_000_000)


@pytest.mark.parametrize(("text", "named"), [
    ("", "1 to 64 delay levels, not 0"),
    ("1s " * 65, "not 65"),
    ("1s 5", 'level 2 as a whole number and s, m, h or d, not "5"'),
    ("1s 5x 3s", 'level 2 .* not "5x"'),
    ("-1s", 'level 1 .* not "-1s"'),
    ("1.5s", 'level 1 .* not "1.5s"'),
    ("\u0661s", "level 1 as a whole number"),
    ("1s 9999999d", "level 2 of at most ten years"),
])
def test_text_that_is_no_list_of_levels_is_refused_with_the_level(text, named):
    with pytest.raises(ValueError, match=named):
        parse_delay_levels(text)


def test_as_many_levels_as_shared_memory_holds_are_taken():
    assert int(re.search(r"DELAY_LEVEL_MAX = (\d+)", LAYOUT.read_text())[1]) == LEVEL_COUNT_MAX
    assert len(parse_delay_levels("1s " * LEVEL_COUNT_MAX)) == LEVEL_COUNT_MAX


def test_a_level_is_lowered_to_the_highest():
    levels = parse_delay_levels("1s 2s")
    assert [capped_level(level, levels) for level in (-1, 0, 1, 2, 3)] == [-1, 0, 1, 2, 2]


def test_the_broker_does_not_start_with_levels_that_cannot_be_read():
    with pytest.raises(SettingsError,
                       match=r'message_delay_levels = "1s x": expected level 2 as'):
        load(overrides=["broker.message_delay_levels=1s x"])


def test_the_stock_key_sets_the_levels(tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_text("messageDelayLevel=1s 10s 2d\n")
    assert load(conf).delay_levels_ms == (1_000, 10_000, 172_800_000)
