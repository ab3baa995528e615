"""
What access files say, and what follows for a request (RocketMQ 4.9.8: PlainPermissionManager,
Permission, AclUtils). No input or output.
"""
from __future__ import annotations

import base64
import hashlib
import hmac
import string
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from mqcore.acl import addresses, nodes
from mqcore.acl.addresses import Address, PatternError
from mqcore.acl.nodes import AclFileError, Node
from mqcore.shm.access import ACCESS_DENY, ACCESS_NAME_BYTES_MAX, ACCESS_PUB, ACCESS_SUB
from mqcore.turns import finished
from mqcore.wire.codes import (
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    KEY_LENGTH_MIN,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)
from mqcore.wire.command import Command
from mqcore.wire.numbers import I64_MAX, I64_MIN
from mqcore.wire.signed import ACCESS_KEY, SIGNATURE, trouble
from mqcore.wire.topics import DataVersion

ACCOUNTS_MAX = 100_000
SIGNED_AT_ONCE = 1 << 19           # bytes of a body: about a millisecond
ADDRESSES_MAX = 250_000          # of all white lists of a file
DENY, PUB, SUB = ACCESS_DENY, ACCESS_PUB, ACCESS_SUB
PERMISSIONS = {
    "DENY": DENY, "PUB": PUB, "SUB": SUB,
    "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB,
}
UNSIGNED = (SIGNATURE, "_UNIQUE_KEY_QUERY")
# Where messages wait that were sent to other topics: delayed ones, halves, and halves given up.
HOLDING_TOPICS = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, GIVEN_UP_TOPIC))
EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "
_FIELDS = ("accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm",
           "defaultGroupPerm", "topicPerms", "groupPerms")
_FOLDING = str.maketrans(string.ascii_uppercase, string.ascii_lowercase, "_-")
_BY_FOLDED = {name.translate(_FOLDING): name for name in _FIELDS}
_TRUE, _FALSE = ("1", "Y", "y", "T"), ("", "0", "F", "f", "N", "null", "NULL")


@dataclass(frozen=True, slots=True)
class Account:
    """permissions: bits by topic, and by %RETRY% and a group; white: rows of its own list."""

    access_key: str
    secret_key: str = field(repr=False)
    white: tuple[Address, ...] = ()
    admin: bool = False
    topic_default: int = DENY
    group_default: int = DENY
    permissions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AclFile:
    """
    One file. document: all that it holds as plain values, for whoever writes it again; raw: as it
    is.
    """

    path: str
    accounts: tuple[Account, ...]
    white: tuple[Address, ...]
    version: DataVersion
    document: dict[str, Any] = field(repr=False)
    raw: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class AccessRefusal:
    """Why a request may not: a word for audit lines, stock's remark, whose it was."""

    reason: str
    remark: str
    access_key: str = ""


# -- files -----------------------------------------------------------------------------------------


def read_file(path: str, raw: bytes) -> AclFile:
    """What a file says; raises AclFileError with the line and what was expected."""
    from mqcore.acl import documents  # YAML: only where there is such a file

    root = documents.read(path, raw)
    if root.value is None:
        return AclFile(path, (), (), DataVersion(timestamp=0), {}, raw)
    if not isinstance(root.value, dict):
        raise AclFileError(path, root.line, "expected globalWhiteRemoteAddresses and accounts")
    white: list[Address] = []
    for item in _list(path, root, "globalWhiteRemoteAddresses"):
        white += _pattern(path, item)
        _check_addresses(path, item, len(white))
    accounts = _list(path, root, "accounts")
    if len(accounts) > ACCOUNTS_MAX:
        raise AclFileError(path, root.line, f"{len(accounts)} accounts: expected at most "
                                            f"{ACCOUNTS_MAX}")
    made: list[Account] = []
    addresses_count = len(white)
    for item in accounts:
        made.append(_account(path, item))
        addresses_count += len(made[-1].white)
        _check_addresses(path, item, addresses_count)
    return AclFile(path, tuple(made), tuple(white), _version(path, root), nodes.plain(root),
                   raw)


def _check_addresses(path: str, node: Node, count: int) -> None:
    if count > ADDRESSES_MAX:
        raise AclFileError(path, node.line, f"more than {ADDRESSES_MAX} addresses in white lists")


def _list(path: str, parent: Node, name: str) -> list[Node]:
    node = parent.value.get(name)
    if node is None or node.value is None:
        return []
    if not isinstance(node.value, list):
        raise AclFileError(path, node.line, f"{name}: expected a list")
    return node.value


def _text(path: str, parent: Node, name: str) -> str:
    node = parent.value.get(name)
    if node is None:
        return ""
    if isinstance(node.value, list | dict):
        raise AclFileError(path, node.line, f"{name}: expected text")
    return nodes.text(node.value)


def _pattern(path: str, node: Node) -> tuple[Address, ...]:
    if isinstance(node.value, list | dict):
        raise AclFileError(path, node.line, "expected an address pattern as text")
    try:
        return addresses.parse(nodes.text(node.value))
    except PatternError as error:
        raise AclFileError(path, node.line, str(error)) from None


def _account(path: str, node: Node) -> Account:
    if not isinstance(node.value, dict):
        raise AclFileError(path, node.line, "an account: expected accessKey, secretKey and more")
    node.value = _fields(path, node.value)
    keys = {}
    for name in ("accessKey", "secretKey"):
        keys[name] = _text(path, node, name)
        wrong = wrong_key(keys[name])
        if wrong:
            raise AclFileError(path, node.value.get(name, node).line, f"{name}: {wrong}")
    permissions: dict[str, int] = {}
    for name, prefix in (("groupPerms", RETRY_PREFIX), ("topicPerms", "")):
        for item in _list(path, node, name):
            resource, bits = _permission(path, name, item)
            permissions[prefix + resource] = bits
    white = node.value.get("whiteRemoteAddress")
    return Account(
        keys["accessKey"], keys["secretKey"], _pattern(path, white) if white else (),
        _flag(path, node, "admin"),
        _default(_text(path, node, "defaultTopicPerm")),
        _default(_text(path, node, "defaultGroupPerm")), permissions)


def _fields(path: str, given: Mapping[str, Node]) -> dict[str, Node]:
    """An account's fields by their names, however they are spelled; unknown ones as they are."""
    found: dict[str, Node] = {}
    for name, node in given.items():
        field_name = _field(name)
        if field_name in found:
            raise AclFileError(path, node.line, f"{field_name}: expected once, in one spelling")
        found[field_name] = node
    return found


@lru_cache(256)
def _field(name: str) -> str:
    """
    What a name stands for in an account: stock looks at neither case nor `_` nor `-`, and takes
    isAdmin for admin.
    """
    if name.startswith("is") and name[2:].translate(_FOLDING) == "admin":
        return "admin"
    return _BY_FOLDED.get(name.translate(_FOLDING), name)


def wrong_key(key: str) -> str:
    """What is wrong with an access or secret key, or ''; the key itself is not told."""
    length = len(key.encode("utf-16-le", "surrogatepass")) // 2        # as Java counts
    if length < KEY_LENGTH_MIN:
        return f"{length} characters: expected at least {KEY_LENGTH_MIN}"
    if not _is_name(key):
        return f"more than {ACCESS_NAME_BYTES_MAX} bytes, or no Unicode text"
    return ""


def _is_name(text: str) -> bool:
    """Whether it can be looked up."""
    try:
        return len(text.encode()) <= ACCESS_NAME_BYTES_MAX
    except UnicodeEncodeError:         # half of a pair
        return False


def _flag(path: str, parent: Node, name: str) -> bool:
    node = parent.value.get(name)
    if node is None or node.value is None:
        return False
    if isinstance(node.value, bool):
        return node.value
    if not isinstance(node.value, list | dict):
        said = nodes.text(node.value)
        if said.lower() == "true" or said in _TRUE:
            return True
        if said.lower() == "false" or said in _FALSE:
            return False
    raise AclFileError(path, node.line, f"{name}: expected true or false")


def _default(text: str) -> int:
    return int(PERMISSIONS.get(text.strip(), DENY))


def split_permission(text: str) -> tuple[str, int] | None:
    """(name, bits) of `name=PERM`; unknown permissions are DENY; None: it is none."""
    parts = text.split("=")
    while parts and not parts[-1]:
        parts.pop()
    if len(parts) != 2 or not parts[0].strip() or not _is_name(parts[0]):
        return None
    return parts[0].strip(), _default(parts[1])


def _permission(path: str, name: str, node: Node) -> tuple[str, int]:
    found = None if isinstance(node.value, list | dict) else split_permission(
        nodes.text(node.value))
    if found is None:
        raise AclFileError(path, node.line, f"{name}: expected name=PERM, with DENY, PUB, SUB or "
                                            "PUB|SUB")
    return found


def _version(path: str, root: Node) -> DataVersion:
    for item in _list(path, root, "dataVersion"):
        if isinstance(item.value, dict):
            found = {name: item.value[name].value for name in ("counter", "timestamp", "timestatmp")
                     if name in item.value}
            if all(isinstance(value, int) and not isinstance(value, bool)
                   and I64_MIN <= value < I64_MAX for value in found.values()):
                return DataVersion(
                    timestamp=found.get("timestamp", found.get("timestatmp", 0)),
                    counter=found.get("counter", 0))
        raise AclFileError(path, item.line, "dataVersion: expected counter and timestamp")
    return DataVersion(timestamp=0)


# -- rules -----------------------------------------------------------------------------------------


class Rules:
    """All files together; of an access key in several of them the first file's account counts."""

    def __init__(self, files: Iterable[AclFile], *, stock_permissions: bool = False) -> None:
        self.files = tuple(files)
        self.stock_permissions = stock_permissions
        self.white = tuple(row for file in self.files for row in file.white)
        self.accounts: dict[str, Account] = {}
        self.file_of: dict[str, str] = {}
        for file in self.files:
            for account in file.accounts:
                if account.access_key not in self.accounts:
                    self.file_of[account.access_key] = file.path
                    self.accounts[account.access_key] = account

    def identify(
        self, request: Command, host: str
    ) -> Generator[None, None, Account | AccessRefusal | None]:
        """
        Whose request it is; None: an address that needs no account, or no permission. With pauses
        for long bodies.
        """
        ext: Mapping[str, str | None] = request.ext or {}
        address = addresses.packed(host)
        if addresses.contains(self.white, address):
            return None
        key = ext.get(ACCESS_KEY)
        if not key:
            return AccessRefusal("no access key", f"{EXCEPTION}No accessKey is configured")
        account = self.accounts.get(key)
        if account is None:
            return AccessRefusal(
                "unknown access key", f"{EXCEPTION}No acl config for {key[:64]}", key)
        if addresses.contains(account.white, address):
            return None
        wrong = trouble(request.code, ext, len(request.body))
        if wrong:
            return AccessRefusal(wrong, f"{EXCEPTION}Check signature failed for accessKey={key}: "
                                        f"{wrong}", key)
        expected = yield from signature_in_turns(account.secret_key, ext, request.body)
        given = (ext.get(SIGNATURE) or "").encode("utf-8", "replace")
        if not hmac.compare_digest(expected, given):
            return AccessRefusal(
                "wrong signature", f"{EXCEPTION}Check signature failed for accessKey={key}", key)
        return account

    def verified(self, request: Command) -> Account | AccessRefusal:
        """The account of a request whose signature was verified before."""
        key = (request.ext or {}).get(ACCESS_KEY) or ""
        return self.accounts.get(key) or AccessRefusal(
            "unknown access key", f"{EXCEPTION}No acl config for {key[:64]}", key)

    def refusal(
        self, account: Account, code: int, needs: Iterable[tuple[str, int]], *, admin: bool
    ) -> AccessRefusal | None:
        """Why an account may not do what needs these permissions, or an administrator."""
        if admin and not account.admin:
            return AccessRefusal(
                "no administrator", f"{EXCEPTION}Need admin permission for request code={code}, "
                f"but accessKey={account.access_key} is not", account.access_key)
        for name, bits in needs:
            if not may(account, name, bits, stock=self.stock_permissions):
                what = "group" if name.startswith(RETRY_PREFIX) else "topic"
                return AccessRefusal(
                    f"no permission for {what} {name.removeprefix(RETRY_PREFIX)}",
                    f"{EXCEPTION}No default permission for {what}:"
                    f"{name.removeprefix(RETRY_PREFIX)}", account.access_key)
        return None


def may(account: Account, name: str, bits: int, *, stock: bool = False) -> bool:
    """
    Whether it has a permission; a group's name begins with %RETRY%. Of HOLDING_TOPICS an account
    needs one of its own; as stock has it (stock), the default counts there, too.
    """
    if account.admin and not account.permissions:
        return True
    owned = account.permissions.get(name)
    if owned is None:
        if name in HOLDING_TOPICS and not stock:
            return False
        owned = account.group_default if name.startswith(RETRY_PREFIX) else account.topic_default
    return not owned & DENY and bool(owned & bits)


def signature(secret_key: str, ext: Mapping[str, str | None], body: bytes) -> bytes:
    """What Signature has to be: the values in the order of their names, and the body."""
    return finished(signature_in_turns(secret_key, ext, body))


def signature_in_turns(
    secret_key: str, ext: Mapping[str, str | None], body: bytes
) -> Generator[None, None, bytes]:
    """The same with pauses."""
    names = sorted((name for name in ext if name not in UNSIGNED),
                   key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    values = "".join("null" if ext[name] is None else str(ext[name]) for name in names)
    digest = hmac.new(secret_key.encode("utf-8", "surrogatepass"),
                      values.encode("utf-8", "replace"), hashlib.sha1)
    for at in range(0, len(body), SIGNED_AT_ONCE):
        if at:
            yield
        digest.update(memoryview(body)[at:at + SIGNED_AT_ONCE])
    return base64.b64encode(digest.digest())
