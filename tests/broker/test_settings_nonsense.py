"""Nonsense in a setting is one short line that names it, from whatever place it came."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mqcore.broker.settings import stock_conf
from mqcore.broker.settings.load import load
from mqcore.broker.settings.model import SECTIONS, Settings, SettingsError

LINE_MAX = 2000
TEXTS = (
    "", " ", "x" * 100_000, "-1", "0", "2147483647", "2147483648", "9223372036854775808", "1e400",
    "NaN", "inf", "1099511627776", "true", "null", "[]", "{}", "\0", "a\0b", "a\nb", "\u0661",
    "0x10", ";;;", ",", "\u00e9" * 200, "\ud800",
)
LITERALS = (
    '""', '"x"', "-1", "0", "2147483647", "9223372036854775808", "1" + 30 * "0", "nan", "-inf",
    "1.5", "true", "[]", "[1]", '["a"]', "{}", "{a=1}", "1979-05-27", "07:32:00", "[[1]]",
    '"\\u0000"', '"\\n"', "[nan]",
)
FILES = (
    b"\xff\xfe", b"[broker]\n\xff", b"[broker]\nname='a'\nname='b'\n", b"[broker]\n[broker]\n",
    b"broker=1", b"[[broker]]\n", b"[broker.x]\ny=1\n", b"=x", b"\\", b"[", b"[" * 100_000,
    b"x=" + b"[" * 5000, b"brokerName=a\nbrokerName=b", b"transientStorePoolSize=" + b"9" * 5000,
    b"listenPort=" + b"9" * 5000,
)
KEYS = [(section, key) for section, kind in SECTIONS.items() for key in kind.__struct_fields__]
STOCK_KEYS = [*stock_conf.RENAMED, *stock_conf.CONVERTED, *stock_conf.FLUSH_KEYS,
              stock_conf.POOL_KEY, *stock_conf.REFUSED, "unknown"]


def is_taken_or_one_line(read: Callable[[], Settings]) -> None:
    try:
        read()
    except SettingsError as error:
        text = str(error)
        assert text.isprintable(), ascii(text)
        assert len(text) <= LINE_MAX


@pytest.mark.parametrize(("section", "key"), KEYS)
def test_a_text_is_taken_or_one_line(section: str, key: str) -> None:
    for text in TEXTS:
        is_taken_or_one_line(lambda text=text: load(None, {}, [f"{section}.{key}={text}"]))
        variable = f"MQCORE_{section}_{key}".upper()
        is_taken_or_one_line(lambda text=text, name=variable: load(None, {name: text}))


@pytest.mark.parametrize(("section", "key"), KEYS)
def test_a_value_of_a_toml_file_is_taken_or_one_line(
    section: str, key: str, tmp_path: Path,
) -> None:
    file = tmp_path / "broker.toml"
    for literal in LITERALS:
        file.write_text(f"[{section}]\n{key} = {literal}\n")
        is_taken_or_one_line(lambda: load(file, {}))


@pytest.mark.parametrize("key", STOCK_KEYS)
def test_a_value_of_a_stock_file_is_taken_or_one_line(key: str, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    for text in TEXTS:
        file.write_bytes(f"{key}={text}\n".encode("utf-8", "surrogatepass"))
        is_taken_or_one_line(lambda: load(file, {}))


@pytest.mark.parametrize("name", ["broker.toml", "broker.conf"])
@pytest.mark.parametrize("number", range(len(FILES)))
def test_a_file_of_nonsense_is_taken_or_one_line(name: str, number: int, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(FILES[number])
    is_taken_or_one_line(lambda: load(file, {}))


def test_a_store_path_that_buffers_cannot_hold_is_refused_with_the_limit() -> None:
    longest = "/" + "d" * 3799
    assert load(None, {}, [f"store.path={longest}"]).store.path == longest
    with pytest.raises(SettingsError, match="a path of at most 3800 bytes, not 3801"):
        load(None, {}, [f"store.path={longest}d"])


def test_a_log_folder_that_buffers_cannot_hold_is_refused_with_the_limit() -> None:
    with pytest.raises(SettingsError, match="paths of at most 4000 bytes, not 4001"):
        load(None, {}, ["store.commit_log_paths=/" + "d" * 4000])
