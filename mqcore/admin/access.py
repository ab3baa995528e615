"""`mqcore acl init|check`: a first access file, and a look at those that there are."""
from __future__ import annotations

import secrets
import string
from pathlib import Path

import click

from mqcore.acl.folder import (
    DEFAULT_NAME,
    FOLDER_NAME,
    SUFFIXES,
    AclFolder,
    is_open_to_others,
)
from mqcore.acl.nodes import AclFileError
from mqcore.acl.rules import Rules
from mqcore.admin.lines import say
from mqcore.wire.printable import json_line

KEY_LENGTH = 32
FOLDER_MODE = 0o700                # of a new one, for files that hold keys
LETTERS = string.ascii_letters + string.digits


def random_key() -> str:
    """What nobody guesses, of letters and digits: 190 bits."""
    return "".join(secrets.choice(LETTERS) for _ in range(KEY_LENGTH))


@click.command("init", short_help="Write a first file, with random keys.")
@click.argument("path", type=click.Path(path_type=Path))
def init(path: Path) -> None:
    """Write a first file with random keys: an administrator and an application.

    PATH is a folder, made if need be, for plain_acl.yml; or the file, whose name ends with .yml or
    .yaml. Only its owner may read it; one that is there is left alone.
    """
    try:
        file = _new_file(path)
    except OSError as error:
        raise click.ClickException(f"{error.filename or path}: {error.strerror}") from None
    document = {
        "globalWhiteRemoteAddresses": [],
        "accounts": [
            {"accessKey": f"admin-{random_key()[:8]}", "secretKey": random_key(), "admin": True},
            {"accessKey": f"app-{random_key()[:8]}", "secretKey": random_key(), "admin": False,
             "defaultTopicPerm": "PUB|SUB", "defaultGroupPerm": "SUB"},
        ],
    }
    try:
        file.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        AclFolder(file.parent).write(file, document)
    except OSError as error:
        raise click.ClickException(f"{error.filename or file}: {error.strerror}") from None
    say(f"{file}: two accounts with random keys, readable by its owner alone")
    say(_where_it_counts(file.absolute()))


def _new_file(path: Path) -> Path:
    """The file to write. Raises click.ClickException, OSError."""
    is_file = path.suffix in SUFFIXES and not path.is_dir()
    file = path if is_file else path / DEFAULT_NAME
    if not file.parent.is_dir() and file.parent.exists():
        raise click.ClickException(
            f"{file.parent}: expected a folder, or a file whose name ends with "
            + " or ".join(SUFFIXES))
    if file.exists():
        raise click.ClickException(f"{file} is there already: nothing was written")
    return file


def _where_it_counts(file: Path) -> str:
    """Which settings make a broker use a file."""
    folder = file.parent
    if file.name != DEFAULT_NAME:
        if folder.name != FOLDER_NAME:
            return (f"no broker reads a file of this name here: expected {folder / DEFAULT_NAME}, "
                    f"or one below {folder / FOLDER_NAME}")
        folder = folder.parent
    return f"a broker uses it with acl.enable = true and acl.folder = {json_line(str(folder))}"


@click.command("check", short_help="Read files as a broker would; say what is wrong.")
@click.argument("path", type=click.Path(exists=True, path_type=Path))
def check(path: Path) -> None:
    """Read a file, or those of a folder, as a broker would: says what is wrong, with its line."""
    try:
        if path.is_dir():
            rules = AclFolder(path).read(stock_permissions=False)
        else:
            rules = Rules([AclFolder(path.parent).read_one(path)])
    except AclFileError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{error.filename or path}: {error.strerror}") from None
    for file in rules.files:
        known = [one for one in file.accounts if rules.file_of[one.access_key] == file.path]
        say(f"{file.path}: {len(known)} accounts, {sum(one.admin for one in known)} administrators")
        if len(known) < len(file.accounts):
            say(f"  {len(file.accounts) - len(known)} more have access keys that came before them "
                "and do not count", err=True)
        if is_open_to_others(Path(file.path)):
            say("  others than its owner may read its keys: chmod 600", err=True)
    if not rules.files:
        raise click.ClickException(f"{path}: no {DEFAULT_NAME}, and no file below acl/")
