"""
Whose name a command asks in (docs/security.md): options, the environment, or a file of profiles.

A profile is a section of ~/.mqcore/profiles.toml (MQCORE_PROFILES names another file), which its
owner alone may read:

    [default]                       # of a command that names none
    access_key = "..."
    secret_key = "..."
"""
from __future__ import annotations

import os
import stat
import sys
import tomllib
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from mqcore.client import Credentials
from mqcore.wire import home
from mqcore.wire.home import NoHomeError
from mqcore.wire.printable import printable

FILE = "~/.mqcore/profiles.toml"
FILE_VARIABLE = "MQCORE_PROFILES"
SECRET_VARIABLE = "MQCORE_SECRET_KEY"
DEFAULT = "default"
FILE_BYTES_MAX = 1 << 20
KEYS = {"access_key", "secret_key", "security_token"}


def signed(command: Callable[..., None]) -> Callable[..., None]:
    """A click command that gets `credentials` (None: it does not sign) in place of the options."""

    @wraps(command)
    def run(*, access_key: str | None, profile: str | None, **options: Any) -> None:
        command(credentials=credentials(access_key, profile), **options)

    made = click.option(
        "--profile", envvar="MQCORE_PROFILE", metavar="NAME",
        help=f"The account of that name in {FILE}  [env: MQCORE_PROFILE].")(run)
    return click.option(
        "--access-key", envvar="MQCORE_ACCESS_KEY", metavar="KEY",
        help=f"Sign as this account; its secret key is {SECRET_VARIABLE}, or asked for"
             "  [env: MQCORE_ACCESS_KEY].")(made)


def credentials(access_key: str | None, profile: str | None) -> Credentials | None:
    """What a command signs with. Raises click.ClickException, which never shows a secret."""
    if access_key and profile:
        raise click.UsageError("give --access-key or --profile (or their variables), not both")
    if access_key:
        return Credentials(access_key, _secret_of(access_key))
    try:
        file = Path(home.expanded(os.environ.get(FILE_VARIABLE) or FILE))
    except NoHomeError as error:
        if profile is None and not os.environ.get(FILE_VARIABLE):
            return None
        raise click.ClickException(str(error)) from error
    if profile is None and not file.exists():
        return None
    profiles = read_profiles(file)
    if profile is None:
        return profiles.get(DEFAULT)
    if profile not in profiles:
        raise click.ClickException(
            f"{file}: there is no section [{printable(profile)}]; it has "
            + (", ".join(map(printable, sorted(profiles))) or "none"))
    return profiles[profile]


def _secret_of(access_key: str) -> str:
    given = os.environ.get(SECRET_VARIABLE)
    if given:
        return given
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"--access-key {printable(access_key)}: its secret key is not in {SECRET_VARIABLE}, "
            "and there is no terminal to ask for it")
    return str(click.prompt(f"secret key of {printable(access_key)}", hide_input=True, err=True))


def read_profiles(file: Path) -> dict[str, Credentials]:
    """The accounts of a file by name. Raises click.ClickException with file, name and reason."""
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            raw = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise click.ClickException(f"{file}: cannot be read: {error.strerror}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise click.ClickException(f"{file}: others may read its secret keys: chmod 600 {file}")
    if len(raw) > FILE_BYTES_MAX:
        raise click.ClickException(f"{file}: expected at most {FILE_BYTES_MAX} bytes")
    try:
        document = tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        line = error if isinstance(error, tomllib.TOMLDecodeError) else type(error).__name__
        raise click.ClickException(f"{file}: not a TOML file: {line}") from None
    return {name: _account(file, name, section) for name, section in document.items()}


def _account(file: Path, name: str, section: Any) -> Credentials:
    where = f"{file}: [{printable(name)}]"
    if not isinstance(section, dict):
        raise click.ClickException(f"{where}: expected a section with access_key and secret_key")
    unknown = sorted(set(section) - KEYS)
    if unknown:
        raise click.ClickException(f"{where}: {printable(unknown[0])} is no key of it; expected "
                                   "access_key, secret_key, security_token")
    for key in ("access_key", "secret_key"):
        if not isinstance(section.get(key), str) or not section[key]:
            raise click.ClickException(f"{where}: {key}: expected text that is not empty")
    token = section.get("security_token")
    if token is not None and (not isinstance(token, str) or not token):
        raise click.ClickException(f"{where}: security_token: expected text that is not empty")
    return Credentials(section["access_key"], section["secret_key"], token)
