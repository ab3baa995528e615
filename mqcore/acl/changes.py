"""
Changes of access files by request (RocketMQ 4.9.8: PlainPermissionManager): what a document is
afterwards. What is not known here stays in it; comments do not.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mqcore.acl import addresses
from mqcore.acl.addresses import PatternError
from mqcore.acl.rules import PERMISSIONS, AclFile, Rules, split_permission, wrong_key
from mqcore.wire.topics import DataVersion

_TEXTS = ("secretKey", "whiteRemoteAddress", "defaultTopicPerm", "defaultGroupPerm")
_LISTS = ("topicPerms", "groupPerms")


class ChangeError(ValueError):
    """A change that makes no sense; the text says what was expected, and tells no secret."""


@dataclass(frozen=True, slots=True)
class AccountChange:
    """What a request says of an account; None: nothing."""

    access_key: str
    secret_key: str | None
    admin: bool
    white: str | None
    topic_default: str | None
    group_default: str | None
    topics: tuple[str, ...] | None
    groups: tuple[str, ...] | None

    @classmethod
    def read(cls, ext: Mapping[str, str | None]) -> AccountChange:
        """Raises ChangeError."""
        key = ext.get("accessKey") or ""
        secret = ext.get("secretKey") or ""
        for name, value in (("accessKey", key), ("secretKey", secret)):
            wrong = wrong_key(value)
            if wrong:
                raise ChangeError(f"{name}: {wrong}")
        white = ext.get("whiteRemoteAddress")
        if white is not None:
            _checked_pattern(white)
        for name in ("defaultTopicPerm", "defaultGroupPerm"):
            if ext.get(name):
                _checked_permission(name, ext[name] or "")
        return cls(key, secret, (ext.get("admin") or "").lower() == "true", white,
                   ext.get("defaultTopicPerm") or None, ext.get("defaultGroupPerm") or None,
                   _permissions("topicPerms", ext.get("topicPerms")),
                   _permissions("groupPerms", ext.get("groupPerms")))

    def apply(self, account: dict[str, Any]) -> None:
        """Into the account's map."""
        given = {"secretKey": self.secret_key, "whiteRemoteAddress": self.white,
                 "defaultTopicPerm": self.topic_default, "defaultGroupPerm": self.group_default,
                 "topicPerms": self.topics, "groupPerms": self.groups}
        account["accessKey"] = self.access_key
        account["admin"] = self.admin
        for name in (*_TEXTS, *_LISTS):
            value = given[name]
            if value is not None:
                account[name] = list(value) if isinstance(value, tuple) else value


def _checked_pattern(pattern: str) -> None:
    try:
        addresses.parse(pattern)
    except PatternError as error:
        raise ChangeError(str(error)) from None


def _checked_permission(name: str, text: str) -> None:
    if text.strip() not in PERMISSIONS:
        raise ChangeError(f"{name}: {text[:40]!a}: expected DENY, PUB, SUB or PUB|SUB")


def _permissions(name: str, text: str | None) -> tuple[str, ...] | None:
    if text is None or not text.strip():
        return None
    items = tuple(item.strip() for item in text.split(",") if item.strip())
    for item in items:
        if split_permission(item) is None:
            raise ChangeError(f"{name}: {item[:80]!a}: expected name=PERM")
        _checked_permission(name, item.partition("=")[2])
    return items


def with_account(file: AclFile, change: AccountChange, now_ms: int) -> dict[str, Any]:
    """
    The file's document with the account changed, or a new one: behind the others, as stock writes
    it.
    """
    document = _next(file, now_ms)
    accounts = document.get("accounts") or []
    account: dict[str, Any] = next(
        (one for one in accounts if _key(one) == change.access_key), {})
    change.apply(account)
    document["accounts"] = [one for one in accounts if one is not account] + [account]
    return document


def with_permissions(
    file: AclFile, access_key: str, topics: Mapping[str, str], groups: Mapping[str, str],
    now_ms: int,
) -> dict[str, Any]:
    """The file's document with some permissions of an account added or replaced, by name."""
    document = _next(file, now_ms)
    accounts = list(document["accounts"])
    at = next(at for at, one in enumerate(accounts) if _key(one) == access_key)
    accounts[at] = {**accounts[at], **{
        name: _merged(accounts[at].get(name), given)
        for name, given in zip(_LISTS, (topics, groups), strict=True) if given}}
    document["accounts"] = accounts
    return document


def _merged(items: list[Any] | None, given: Mapping[str, str]) -> list[Any]:
    kept = [item for item in items or []
            if (found := split_permission(str(item))) is None or found[0] not in given]
    return [*kept, *(f"{name}={perm}" for name, perm in given.items())]


def without_account(file: AclFile, access_key: str, now_ms: int) -> dict[str, Any]:
    """The file's document without the account."""
    document = _next(file, now_ms)
    document["accounts"] = [one for one in document["accounts"] or [] if _key(one) != access_key]
    return document


def account_values(rules: Rules, access_key: str) -> dict[str, object]:
    """An account's fields as its file has them, without the secret; {}: there is no account."""
    path = rules.file_of.get(access_key)
    for file in rules.files:
        if file.path == path:
            for account in file.document["accounts"]:
                if _key(account) == access_key:
                    return {**account, "secretKey": "hidden"}
    return {}


def with_white(file: AclFile, text: str, now_ms: int) -> dict[str, Any]:
    """The file's document with another global white list, whose patterns stand between commas."""
    patterns = [part.strip() for part in text.split(",") if part.strip()]
    for pattern in patterns:
        _checked_pattern(pattern)
    return {**_next(file, now_ms), "globalWhiteRemoteAddresses": patterns}


def _key(account: dict[str, Any]) -> str:
    return str(account.get("accessKey"))


def _next(file: AclFile, now_ms: int) -> dict[str, Any]:
    """A copy of the document with the version after the file's."""
    return {**file.document, "dataVersion": [{
        "counter": file.version.counter + 1, "timestamp": now_ms}]}


def newest(files: tuple[AclFile, ...], path: str) -> DataVersion:
    """The version of a file; of one that is not there 0."""
    return next((file.version for file in files if file.path == path), DataVersion(timestamp=0))
