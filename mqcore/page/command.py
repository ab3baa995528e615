"""`mqcore dashboard`: the page by itself, for any cluster, a stock one too."""
from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from mqcore.admin.lines import say
from mqcore.admin.shell import contexts, files
from mqcore.admin.shell.connection import connection
from mqcore.admin.shell.exits import Failure
from mqcore.broker.settings.exposure import is_loopback
from mqcore.broker.settings.masks import EXPECTED, all_parsed
from mqcore.broker.settings.validation import HOST_NAME, PROTOBUF_LINE, USER_LINE
from mqcore.page.users import PASSWORD_MIN, Users, line_of
from mqcore.wire.expected import is_address

LISTEN = "127.0.0.1:10980"
NAME = re.compile(r"[\w.@-]{1,64}", re.ASCII)
BACKLOG = 64


@click.group("dashboard", invoke_without_command=True)
@click.option("-n", "--namesrv", metavar="ADDRESSES", help="Name servers, host:port;host:port.")
@click.option("-x", "--context", "names", multiple=True, metavar="NAME",
              help="A context; several are several clusters, each under /NAME/.")
@click.option("--access-key", metavar="KEY", help="Sign as this account.")
@click.option("--listen", default=LISTEN, show_default=True, metavar="HOST:PORT",
              help="Where it listens.")
@click.option("--map", "pairs", multiple=True, metavar="OLD=NEW",
              help="Reach the broker that registers as OLD at NEW, both host:port.")
@click.option("--write", is_flag=True, help="Let it change topics, groups, offsets and settings.")
@click.option("--users", "users_file", type=click.Path(path_type=Path, exists=True),
              help="A file with lines of `mqcore dashboard user`: who may log in.")
@click.option("--host", "hosts", multiple=True, metavar="NAME",
              help="A name under which browsers reach it, besides addresses and localhost.")
@click.option("--protobuf", "schemas", multiple=True, metavar="TOPIC=FILE:MESSAGE",
              help="The type of a topic's bodies, in a file of `protoc --descriptor_set_out`.")
@click.option("--mask", "mask_lines", multiple=True, metavar="TOPIC=KIND:WHAT",
              help="Hide in messages what json:$.PATH, property:NAME or text:REGEX says.")
@click.option("--unmasked", multiple=True, metavar="NAME", help="A user who sees what is hidden.")
@click.pass_context
def dashboard_command(
    ctx: click.Context, namesrv: str | None, names: Sequence[str], access_key: str | None,
    listen: str, pairs: Sequence[str], write: bool, users_file: Path | None, hosts: Sequence[str],
    schemas: Sequence[str], mask_lines: Sequence[str], unmasked: Sequence[str],
) -> None:
    """Serve the page for browsers until Ctrl-C; `user` makes a line for who may log in."""
    if ctx.invoked_subcommand is not None:
        return
    if namesrv and names:
        raise click.UsageError("give --namesrv or --context, not both")
    if not is_address(listen):
        raise click.BadParameter(f"{listen!r}: expected host:port", param_hint="--listen")
    wrong = next((name for name in hosts if not HOST_NAME.fullmatch(name)), None)
    if wrong is not None:
        raise click.BadParameter(f"{wrong!r}: expected a name without a port", param_hint="--host")
    odd = next((line for line in schemas if not PROTOBUF_LINE.fullmatch(line)), None)
    if odd is not None:
        raise click.BadParameter(f"{odd!r}: expected TOPIC=FILE:MESSAGE", param_hint="--protobuf")
    lines = _lines(users_file)
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if not is_loopback(host) and not lines:
        raise click.UsageError(f"--listen {listen}: other hosts would be asked for no account; "
                               "give --users, or an address of this machine")
    try:
        masks = all_parsed(mask_lines)
    except ValueError as error:
        raise click.BadParameter(f"{error}; expected {EXPECTED}", param_hint="--mask") from None

    def site(clusters: list[Any]) -> Any:
        from mqcore.page.audit import Trail
        from mqcore.page.context import Site
        from mqcore.page.decoding import schemas_of
        from mqcore.page.masking import Masks

        types = schemas_of(schemas)
        return Site(clusters, Users(time.monotonic, lines), Trail(), write, tuple(hosts),
                    schemas=types, masks=Masks(masks, types), unmasked=frozenset(unmasked))

    _serve(host, int(port), _clusters(namesrv, names, access_key, _addresses(pairs)), site)


def _clusters(
    namesrv: str | None, names: Sequence[str], access_key: str | None, addresses: dict[str, str],
) -> list[Any]:
    from mqcore.page.asking import Cluster

    if len(names) < 2:
        one = connection(namesrv, names[0] if names else None, access_key)
        return [Cluster(one.namesrv, one.credentials, one.context, "", addresses)]
    found = []
    for name in dict.fromkeys(map(contexts.checked_name, names)):
        one = connection(None, name, access_key)
        found.append(Cluster(one.namesrv, one.credentials, name, f"/{name}", addresses))
    return found


def _addresses(pairs: Sequence[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        old, _, new = pair.partition("=")
        if not is_address(old) or not is_address(new):
            raise click.BadParameter(f"{pair!r}: expected OLD=NEW, both host:port",
                                     param_hint="--map")
        found[old] = new
    return found


def _lines(file: Path | None) -> tuple[str, ...]:
    """The users of a file; empty lines and those that begin with # are none."""
    if file is None:
        return ()
    lines = []
    text = files.read(file).decode(errors="replace")
    for number, one in enumerate(text.splitlines(), 1):
        line = one.strip()
        if not line or line.startswith("#"):
            continue
        if not USER_LINE.fullmatch(line):
            raise Failure(f"{file}:{number}: expected a line that `mqcore dashboard user NAME` "
                          "prints")
        lines.append(line)
    if not lines:
        raise Failure(f"{file}: expected at least one line of `mqcore dashboard user NAME`")
    return tuple(lines)


def _serve(host: str, port: int, clusters: list[Any], site: Callable[[list[Any]], Any]) -> None:
    from mqcore.page.serving import serve

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family, backlog=BACKLOG) as listener:
            say(f"mqcore dashboard ready http://{'[' + host + ']' if ':' in host else host}:{port}/"
                f" for {', '.join(one.name or one.namesrv for one in clusters)}")
            asyncio.run(serve(site(clusters), listener))
    except OSError as error:
        raise Failure(f"--listen {host}:{port}: cannot be listened on: {error.strerror}") from None


@dashboard_command.command("user")
@click.argument("name")
def user_command(name: str) -> None:
    """Ask for a password and print the line of a user, for http.users or --users."""
    if not NAME.fullmatch(name):
        raise click.BadParameter(f"{name!r}: expected letters, digits, '_', '.', '@' or '-', at "
                                 "most 64", param_hint="NAME")
    password = str(click.prompt(f"password of {name}", hide_input=True, err=True,
                                confirmation_prompt=True))
    if len(password) < PASSWORD_MIN:
        raise Failure(f"expected at least {PASSWORD_MIN} characters")
    click.echo(line_of(name, password))
