"""
Contexts: a cluster's name servers and the account to use there, under a name.

A context is a TOML file `contexts/NAME.toml` in ~/.config/mqcore (MQCORE_CONFIG_HOME names another
folder) that only its owner may read:

    namesrv = "10.0.0.5:9876"          # or rocketmq://host:9876?tls=verify&ca=FILE
    access_key = "ops"
    secret_key = "..."                 # or secret_command = "pass show mqcore/ops"
    confirm = true                     # deletes and resets ask for the object's name

The file `context` beside that folder has the name of the context in use.
"""
from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
from pathlib import Path
from typing import Any

from msgspec import Struct

from mqcore.admin.shell import toml
from mqcore.admin.shell.exits import Exit, Failure, NotFound
from mqcore.client import Credentials
from mqcore.client.config import split_addresses
from mqcore.wire import home
from mqcore.wire.home import NoHomeError
from mqcore.wire.printable import printable

FOLDER_VARIABLE = "MQCORE_CONFIG_HOME"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
FILE_BYTES_MAX = 1 << 20
SECRET_COMMAND_LIMIT_S = 30
TEXTS = ("namesrv", "access_key", "secret_key", "secret_command", "security_token")
FLAGS = ("confirm",)


class Context(Struct, frozen=True):
    """One context as its file has it; it never shows its secret."""

    name: str
    namesrv: str
    access_key: str = ""
    secret_key: str = ""
    secret_command: str = ""
    security_token: str = ""
    confirm: bool = False

    def __repr__(self) -> str:
        return f"Context({self.name!r}, {self.namesrv!r}, {self.access_key!r})"

    def credentials(self) -> Credentials | None:
        """The account; runs `secret_command` if there is one. Raises Failure."""
        if not self.access_key:
            return None
        secret = self.secret_key or self._secret()
        return Credentials(self.access_key, secret, self.security_token or None)

    def _secret(self) -> str:
        try:
            done = subprocess.run(shlex.split(self.secret_command), capture_output=True, text=True,
                                  timeout=SECRET_COMMAND_LIMIT_S, check=False)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise Failure(f"context {self.name}: secret_command: {error}") from None
        secret = done.stdout.strip("\n")
        if done.returncode or not secret or "\n" in secret:
            raise Failure(f"context {self.name}: secret_command: expected one line and status 0, "
                          f"found status {done.returncode}")
        return secret


def folder() -> Path:
    """Where contexts are. Raises Failure for a user without a home folder."""
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        return Path(given)
    try:
        return Path(home.expanded(os.environ.get("XDG_CONFIG_HOME") or "~/.config")) / "mqcore"
    except NoHomeError as error:
        raise Failure(f"{error}; or set {FOLDER_VARIABLE}") from None


def checked_name(name: str) -> str:
    """A context's name, which is also a file's. Raises Failure."""
    if not NAME.fullmatch(name):
        raise Failure(f"context {printable(name)!r}: expected letters, digits, '.', '_' or '-', "
                      "at most 64", Exit.USAGE)
    return name


def file_of(name: str) -> Path:
    """The file of a context. Raises Failure for a name that cannot be one."""
    return folder() / "contexts" / f"{checked_name(name)}.toml"


def names() -> tuple[str, ...]:
    """The names of all contexts, sorted."""
    try:
        found = os.listdir(folder() / "contexts")
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise Failure(f"{folder() / 'contexts'}: cannot be read: {error.strerror}") from None
    stems = (name.removesuffix(".toml") for name in found if name.endswith(".toml"))
    return tuple(sorted(stem for stem in stems if NAME.fullmatch(stem)))


def current() -> str | None:
    """The name of the context in use, or None."""
    try:
        file = folder() / "context"
    except Failure:
        return None                    # no home folder: no context is in use
    try:
        name = file.read_text()[:FILE_BYTES_MAX].strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{file}: cannot be read: {error}") from None
    return checked_name(name) if name else None


def use(name: str | None) -> None:
    """Make a context the one in use; None = none."""
    file = folder() / "context"
    if name is None:
        file.unlink(missing_ok=True)
        return
    load(name)
    _write(file, name + "\n")


def load(name: str) -> Context:
    """A context by name. Raises NotFound, or Failure with file, key and reason."""
    file = file_of(name)
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFound("context", name, names(), "mqcore context ls") from None
    except OSError as error:
        raise Failure(f"{file}: cannot be read: {error.strerror}") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise Failure(f"{file}: expected a regular file")
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise Failure(f"{file}: others may read its secret key: chmod 600 {file}")
        with open(descriptor, "rb", closefd=False) as opened:
            raw = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise Failure(f"{file}: cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)
    if len(raw) > FILE_BYTES_MAX:
        raise Failure(f"{file}: expected at most {FILE_BYTES_MAX} bytes")
    import tomllib  # most commands read no context

    try:
        document = tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        # another error's text may repeat the secret
        why = error if isinstance(error, tomllib.TOMLDecodeError) else type(error).__name__
        raise Failure(f"{file}: not a TOML file: {why}") from None
    return _checked(file, name, document)


def _checked(file: Path, name: str, document: dict[str, Any]) -> Context:
    unknown = sorted(set(document) - {*TEXTS, *FLAGS})
    if unknown:
        raise Failure(f"{file}: unknown key {printable(unknown[0])}; expected "
                      f"{', '.join((*TEXTS, *FLAGS))}")
    for key, value in document.items():
        if key in FLAGS and not isinstance(value, bool):
            raise Failure(f"{file}: {key}: expected true or false")
        if key in TEXTS and not (isinstance(value, str) and value):
            raise Failure(f"{file}: {key}: expected text that is not empty")
    if "namesrv" not in document:
        raise Failure(f"{file}: namesrv: expected host:port;host:port or a rocketmq:// URL")
    try:
        split_addresses(document["namesrv"])
    except ValueError as error:
        raise Failure(f"{file}: {error}") from None
    secrets = [key for key in ("secret_key", "secret_command") if key in document]
    if len(secrets) != ("access_key" in document):
        raise Failure(f"{file}: access_key: expected beside it one of secret_key, secret_command")
    return Context(name, **document)


def save(context: Context, *, replace: bool = False) -> Path:
    """Write a context, readable by its owner only; returns its file. Raises Failure."""
    file = file_of(context.name)
    values = {key: getattr(context, key) for key in (*TEXTS, *FLAGS)}
    document = {key: value for key, value in values.items() if value}
    _checked(file, context.name, document)
    if file.exists() and not replace:
        raise Failure(f"context {context.name} exists; --replace writes it again")
    lines = [f"{key} = {toml.value(value)}\n" for key, value in document.items()]
    _write(file, "".join(lines))
    return file


def remove(name: str) -> None:
    """Delete a context; if it is in use, none is afterwards. Raises NotFound."""
    file = file_of(name)
    try:
        file.unlink()
    except FileNotFoundError:
        raise NotFound("context", name, names(), "mqcore context ls") from None
    if current() == name:
        use(None)


def _write(file: Path, text: str) -> None:
    """Replace a file as a whole; only its owner may read it."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(descriptor)
        os.replace(fresh, file)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise Failure(f"{file}: cannot be written: {error.strerror}") from None
