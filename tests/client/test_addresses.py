"""Lists of name servers, as people write them."""
from __future__ import annotations

import pytest

from mqcore.client.config import split_addresses
from mqcore.client.errors import ConfigError


@pytest.mark.parametrize("text", ["a:1;b:2", "a:1,b:2", " a:1 , b:2;", "a:1;,b:2", ["a:1", "b:2"]])
def test_a_list_may_have_semicolons_and_commas(text: str | list[str]) -> None:
    assert split_addresses(text) == ("a:1", "b:2")


def test_a_bad_entry_of_a_list_is_named() -> None:
    with pytest.raises(ConfigError, match="b"):
        split_addresses("a:1,b")
