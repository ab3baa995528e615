"""
Hides fields of messages, in a process of its own: bodies and their senders' names may cost much.

A field that a path hides is found in the decoded body. A body that cannot be searched is
hidden whole: one that is larger, broken, or of a kind that has no fields.
"""
from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from mqcore.broker.settings.masks import ANY, DEEP, Mask, parsed, steps_of
from mqcore.page import decoders
from mqcore.page.decoders import Schema
from mqcore.wire.properties import KEYS, RESERVED, TAGS

MASK = "***"


@lru_cache(256)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


@lru_cache(256)
def _steps(path: str) -> tuple[str | int, ...]:
    return steps_of(path)


@lru_cache(1024)
def _mask(line: str) -> Mask:
    return parsed(line)


def work(request: bytes) -> bytes:
    """
    Hide fields of some messages.

    request   JSON, a list of [lines of masks, properties, size of the body, whether all of the body
              is hidden, file and name of a schema or nothing], a line end, then the bodies
    answer    JSON, a list of [properties, body as text; null where it stays unchanged, false where
           it may not be shown]
    """
    head, _, rest = request.partition(b"\n")
    at = 0
    answers = []
    for lines, properties, size, whole, schema in json.loads(head):
        masks = [_mask(line) for line in lines]
        body = rest[at:at + size]
        at += size
        text: str | bool | None = False if whole else masked_body(
            body, masks, Schema(*schema) if schema else None)
        answers.append([masked_properties(properties, masks, whole=whole), text])
    return json.dumps(answers).encode()


def masked_properties(properties: Mapping[str, str], masks: Sequence[Mask], *,
                      whole: bool) -> dict[str, str]:
    """The properties of a message; RocketMQ's own stay, but for keys and tags."""
    names = {mask.what for mask in masks if mask.kind == "property"}
    shown = {}
    for name, value in properties.items():
        if name in names or (whole and name == KEYS):
            shown[name] = MASK
        elif name not in RESERVED or name in (KEYS, TAGS):
            shown[name] = masked_text(value, masks)
        else:
            shown[name] = value
    return shown


def masked_text(text: str, masks: Sequence[Mask]) -> str:
    """A text without what expressions find in it."""
    for mask in masks:
        if mask.kind == "text":
            text = _pattern(mask.what).sub(MASK, text)
    return text


def masked_body(
    body: bytes, masks: Sequence[Mask], schema: Schema | None = None,
) -> str | bool | None:
    """The body as text, its fields hidden; None: no mask is about it. False: it is hidden whole."""
    paths = [_steps(mask.what) for mask in masks if mask.kind == "json"]
    has_texts = any(mask.kind == "text" for mask in masks)
    if not (paths or has_texts) or not body:
        return None
    if len(body) > decoders.BYTES_MAX:
        return False
    try:
        value = decoders.structured(body, schema)
        for steps in paths:
            value = _without(value, steps)
        if has_texts:
            value = _texts_hidden(value, masks)
        return masked_text(decoders.written(value), masks)
    except decoders.ERRORS:
        pass
    if paths:
        return False
    try:
        return masked_text(decoders.plain_text(body), masks)
    except decoders.ERRORS:
        return False


def _without(value: Any, steps: Sequence[str | int]) -> Any:
    """A value with MASK at the places of a path."""
    if not steps:
        return MASK
    step, rest = steps[0], steps[1:]
    if step == DEEP:
        return _children(_without(value, rest), lambda _key, child: _without(child, steps))
    return _children(value, lambda key, child: _without(child, rest)
                     if step in (ANY, key) else child)


def _children(value: Any, change: Any) -> Any:
    if isinstance(value, dict):
        return {key: change(key, child) for key, child in value.items()}
    if isinstance(value, list):
        return [change(number, child) for number, child in enumerate(value)]
    return value


def _texts_hidden(value: Any, masks: Sequence[Mask]) -> Any:
    """A value whose texts, names and numbers have no match of an expression."""
    if isinstance(value, dict):
        return {masked_text(key, masks): _texts_hidden(child, masks)
                for key, child in value.items()}
    if isinstance(value, list):
        return [_texts_hidden(child, masks) for child in value]
    if isinstance(value, decoders.Number):
        text = masked_text(str(value), masks)
        return value if text == value else text
    return masked_text(value, masks) if isinstance(value, str) else value
