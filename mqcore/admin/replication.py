"""`mqcore replication`: who leads and who follows, and what an operator makes of a broker."""
from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import click
import posix_ipc

from mqcore.admin.lines import say
from mqcore.admin.shell.connection import Connection, connects
from mqcore.admin.shell.runner import LocalPlan, at_a_terminal, changes_here
from mqcore.admin.shell.view import Text, View
from mqcore.admin.store import json_option, log_option, store_argument
from mqcore.backup.errors import BackupError
from mqcore.backup.tables import settle_again
from mqcore.client.config import ClientConfig
from mqcore.client.core.options import split_address
from mqcore.client.errors import ClientError, ConfigError
from mqcore.replication import epochs
from mqcore.replication.epochs import (
    EpochsError,
    RoleError,
    Standing,
    State,
    demoted,
    promoted,
)
from mqcore.replication.greeting import OtherLogError
from mqcore.replication.identity import IDENTITY_FILE
from mqcore.replication.key import cluster_key
from mqcore.replication.peers import PeerError, PeerState, states
from mqcore.replication.rejoin import Overtaken, RejoinError, rejoin
from mqcore.replication.side_files import FOLDER
from mqcore.shm.members import MEMBER_ID_MAX
from mqcore.shm.segment import LayoutError, Segment, stale_segments
from mqcore.store import ownership
from mqcore.store.log.folders import LOG, LogFolders
from mqcore.store.ownership import StoreInUseError
from mqcore.store.verify.files import usual
from mqcore.store.verify.scan import LogScan
from mqcore.wire.numbers import whole_number
from mqcore.wire.printable import printable

RUN_PREFIX = "mqcore-"            # of the shared memory of a run
SILENT_MS = 1000                  # of etcd, that is worth a word
NOBODY = "0"                      # of failoverLeader
SUPERVISOR_TITLE = b"mqcore: supervisor"
broker_id_option = click.option(
    "--broker-id", type=click.IntRange(1, MEMBER_ID_MAX), show_default="a slave's own, else 1",
    help="Its id among the brokers of its name; each has another one.")


def _way(addresses: str) -> ClientConfig:
    """To what an option names: host:port, or a URL with TLS. Raises click.UsageError."""
    try:
        return ClientConfig(namesrv=addresses)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def _states(connection: Connection, broker: str) -> dict[str, PeerState | PeerError]:
    """By address, the answers of the brokers of a name. Raises click.UsageError."""
    way = _way(connection.namesrv)
    return asyncio.run(states(way.name_servers, broker, connection.credentials or way.account,
                              way.ssl_context()))


@click.group("replication")
def replication_group() -> None:
    """Masters and slaves: see docs/replication.md."""


@replication_group.command("status")
@click.argument("broker")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, an object for each.")
@connects
def status_command(connection: Connection, broker: str, *, as_json: bool) -> None:
    """What the brokers of the name BROKER say: role, log, last epoch, how far behind."""
    found = _states(connection, broker)
    if not found:
        raise click.ClickException(f"no name server that answers knows a broker {broker}")
    rows = _rows(found)
    if as_json:
        click.echo(json.dumps(rows))
        return
    for row in rows:
        if "trouble" in row:
            say(f"{row['address']:<22} {row['trouble']}")
            continue
        epoch = "no epoch" if row["epoch"] is None else f"epoch {row['epoch']} of {row['master']}"
        say(f"{row['address']:<22} id {row['brokerId']:<3} {row['role']:<13} log {row['first']} to "
            f"{row['end']}, {row['behindBytes']} bytes behind, {epoch}{election_words(row)}")


def election_words(row: dict[str, Any]) -> str:
    """What the line of a broker says of who is elected; empty: nobody is."""
    found = row["election"]
    if not found:
        return ""
    left_ms, silent_ms = (whole_number(found.get(key, "")) or 0 for key in (
        "failoverLeaseMillis", "failoverEtcdSilentMillis"))
    leader, epoch, in_sync = (printable(found.get(key, "?")) for key in (
        "failoverLeader", "failoverEpoch", "failoverInSync"))
    if leader == NOBODY:
        leader = "nobody that it knows of"
    return (f", elected: {leader} in epoch {epoch}, set {in_sync}, lease "
            + (f"{left_ms / 1000:.1f} s" if left_ms else "none")
            + (f", etcd silent for {silent_ms / 1000:.1f} s" if silent_ms > SILENT_MS else ""))


def _rows(found: dict[str, PeerState | PeerError]) -> list[dict[str, Any]]:
    most = max((state.end for state in found.values() if isinstance(state, PeerState)), default=0)
    rows: list[dict[str, Any]] = []
    for address, state in found.items():
        if isinstance(state, PeerError):
            rows.append({"address": address, "trouble": str(state).removeprefix(f"{address}: ")})
            continue
        last = None if state.history is None else state.history.last
        rows.append({
            "address": address, "brokerId": state.broker_id, "role": state.role,
            "first": state.first, "end": state.end, "behindBytes": most - state.end,
            "epoch": None if last is None else last.number,
            "master": None if last is None else last.master, "election": state.election})
    return rows


@replication_group.command("promote")
@store_argument
@click.option("--sync", "synchronous", is_flag=True,
              help="Acknowledge what a slave has, too (sync-master).")
@click.option("--force", is_flag=True, help="Also when another broker has more of the log.")
@log_option
@connects
@changes_here
def promote_command(connection: Connection, store: Path, log_folders: LogFolders | None, *,
                    synchronous: bool, force: bool) -> LocalPlan:
    """
    Make a master of the slave with STORE, which begins an epoch at the end of its log.

    It lacks messages behind its end, and those that this broker has deleted. A broker that
    runs on STORE begins anew at once; else its next start is that of a master, whatever its
    settings say. The other brokers of its name, as name servers have them, are asked before how
    much of the log they have.
    """
    def check(pid: int) -> None:
        if not force:
            _check_most(store, pid, log_folders, connection)

    return _plan(store, lambda standing: promoted(standing, synchronous=synchronous), "master",
                 check)


def _check_most(store: Path, pid: int, log_folders: LogFolders | None,
                connection: Connection) -> None:
    """pid: of the broker that runs on the store, 0: none. Raises ClickException, EpochsError."""
    standing = epochs.read(store)
    if standing is None or standing.state is State.LEADS:
        return
    mine = standing.history
    name = mine.last.master.rpartition("/")[0]
    found = _states(connection, name)
    others = {
        address: (state.history.last.number, state.end, -state.first)
        for address, state in found.items()
        if isinstance(state, PeerState) and state.history is not None
        and state.history.log_id == mine.log_id}
    if not others:
        say(f"whether another broker {name} has more of the log is not known: none answers, as "
            f"the name servers {connection.namesrv} have them (-n)", err=True)
        return
    # behind the answers: one of them may be this broker's own
    first, end = log_range(store, pid, log_folders)
    here = mine.last.number, end, -first
    address, most = max(others.items(), key=lambda one: one[1])
    if most > here:
        raise click.ClickException(
            f"the broker at {address} has the log from {-most[2]} up to {most[1]} in epoch "
            f"{most[0]}, {store} from {first} up to {end} in epoch {here[0]}: promote that one, or "
            "this one with --force")
    earliest = -max(one[2] for one in others.values())
    if earliest < first:
        say(f"another broker {name} has the log from {earliest} on, and {store} from {first} on: "
            "consumers will not get what lies between", err=True)


def log_range(store: Path, pid: int, log_folders: LogFolders | None) -> tuple[int, int]:
    """
    Where the log begins and ends, as the broker says that runs on the store, or its files at rest.
    """
    for run in stale_segments(RUN_PREFIX):
        if pid and run.rpartition("-")[2] == str(pid):
            try:
                state = Segment.attach(run).log_state()
                return state["first"], state["published"]
            except posix_ipc.ExistentialError:        # it has just ended: the files say it
                break
            except (LayoutError, PermissionError) as error:
                raise click.ClickException(f"process {pid}, which runs on {store}, cannot be "
                                           f"looked into: {error}") from error
    if log_folders is None and not (store / LOG).is_dir():
        raise click.ClickException(f"{store}: there is no {LOG} in this store: --commit-log says "
                                   "where it is")
    folders = log_folders or LogFolders((store / LOG,), store=store)
    segments = folders.segments()
    newest = segments[-2:]                       # the last one may have been made ahead
    size = usual(path.stat().st_size for _, path in newest)
    if not newest or not size:
        return 0, 0
    scan = LogScan(folders.text(), [(start, size) for start, _ in newest], start=newest[0][0])
    while scan.next() is not None:
        continue
    return segments[0][0], scan.position


@replication_group.command("demote")
@store_argument
@broker_id_option
@changes_here
def demote_command(store: Path, broker_id: int | None) -> LocalPlan:
    """
    Make a slave of the master with STORE; the other one has to be promoted. A slave gets another
    id, by --broker-id.

    It follows if all of its log is the new master's; else it says how much is not, and mqcore
    replication rejoin keeps and cuts that.
    """
    def change(standing: Standing) -> Standing:
        if broker_id is None and standing.state is State.FOLLOWS:
            raise RoleError("it is a slave already: --broker-id gives it another id")
        return demoted(standing, broker_id)

    return _plan(store, change, "slave")


def _plan(store: Path, change: Callable[[Standing], Standing], role: str,
          check: Callable[[int], None] | None = None) -> LocalPlan:
    """
    check: a look at the other brokers, before anything is asked; it gets the process that runs on
    the store, 0: none does.
    """
    if (store / IDENTITY_FILE).exists():
        raise click.ClickException(
            f"{store} takes part in elections (failover.enable), which alone say who leads: stop "
            "the broker that leads, and another one does; to end that for good, set "
            f"failover.enable = false and remove {store / IDENTITY_FILE}")
    try:
        pid = _supervisor(store)
        if check is not None:
            check(pid)
        before = _known(store)
        after = change(before)
    except (EpochsError, RoleError, OSError) as error:
        raise click.ClickException(str(error)) from error
    document = {"store": str(store), "role": role, "pid": pid or None,
                "epochBefore": before.history.last.number, "epoch": after.history.last.number}
    when = (f"process {pid}, which runs on it, begins anew" if pid > 0
            else "at the next start of a broker on it")
    line = f"make a {role} of {store} ({when})"

    def work() -> View:
        try:
            pid = _supervisor(store)                  # it may have begun while a person read
            with epochs.held(store):
                epochs.write(store, change(_known(store)))
        except (EpochsError, RoleError, OSError) as error:
            raise click.ClickException(str(error)) from error
        done = (f"process {pid}, which runs on {store}, begins anew as a {role}"
                if pid and _told(pid) else f"the next start on {store} is that of a {role}")
        return View(document, [Text([done])])

    return LocalPlan(View(document, [Text([line])]), work, line, str(store))


def _known(store: Path) -> Standing:
    standing = epochs.read(store)
    if standing is None:
        raise click.ClickException(
            f"{store} has no epochs: it followed no master of mqcore, and is what its settings say "
            "(replication.role)")
    return standing


def _supervisor(store: Path) -> int:
    """The process of ours that runs on the store; 0: none. Raises ClickException for another's."""
    pid = ownership.holder(store)
    if pid and not _command_of(pid).startswith(SUPERVISOR_TITLE):
        raise click.ClickException(f"{store} is in use by another program than a broker of mqcore"
                                   + (f": process {pid}" if pid > 0 else ""))
    return pid


def _told(pid: int) -> bool:
    """Have a supervisor look at its store again; False: it has just ended."""
    try:
        os.kill(pid, signal.SIGUSR1)
    except ProcessLookupError:
        return False
    return True


def _command_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes() if pid > 0 else b""


@replication_group.command("rejoin")
@store_argument
@click.option("--master", required=True, metavar="HOST:PORT",
              help="HA port of the broker that leads now; by TLS: "
                   "rocketmq://HOST:PORT?tls=verify&ca=FILE&cert=FILE&key=FILE.")
@broker_id_option
@click.option("--force", is_flag=True,
              help="Also when STORE ends with a later epoch than the master, which is cut then.")
@click.option("--secret-key-file", type=click.File(encoding="utf-8"), metavar="FILE",
              help="The secret key of the account that the master asks slaves for, in its first "
                   "line (acl.client_secret_key_file).")
@log_option
@click.option("--dry-run", "dry", is_flag=True, help="Say what would be cut, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def rejoin_command(store: Path, master: str, broker_id: int | None,
                   log_folders: LogFolders | None, secret_key_file: TextIO | None, *, force: bool,
                   dry: bool, yes: bool, as_json: bool) -> None:
    """
    Make a slave of STORE, which no broker uses meanwhile and which was overtaken.

    The place where its log and the master's part is found by epochs and by the bytes below it. What
    STORE has behind that goes to a side file in STORE/overtaken and is cut.
    """
    secret = "" if secret_key_file is None else secret_key_file.readline().rstrip("\r\n")
    key = cluster_key(secret) if secret else b""
    way = _way(master)

    def run(*, dry: bool) -> Overtaken:
        try:
            return rejoin(store, split_address(way.name_servers[0]), broker_id, log_folders,
                          partial(settle_again, store), force=force, key=key,
                          tls=way.ssl_context(), dry=dry)
        except StoreInUseError as error:
            raise click.ClickException(f"{error}; stop it first") from error
        except (RejoinError, OtherLogError, EpochsError, BackupError, ClientError,
                OSError) as error:
            raise click.ClickException(str(error)) from error

    if not dry and not yes:
        question = f"make a slave of {store}"
        at_a_terminal(question)
        say(_story(store, run(dry=True)), err=True)
        click.confirm(printable(f"{question}?"), abort=True, err=True)
    found = run(dry=dry)
    if as_json:
        click.echo(json.dumps({
            "position": found.position, "end": found.end, "messages": found.messages,
            "topics": found.topics, "master": found.master, **({"dryRun": True} if dry else {}),
            "sideFile": None if found.side_file is None else str(found.side_file)}))
        return
    say(_story(store, found))


def _story(store: Path, found: Overtaken) -> list[str]:
    """Lines about a rejoin; one that was only tried has no side file."""
    last = f"the next start on {store} is that of a slave"
    if found.position == found.end:
        return [f"all of the log is the master's ({found.master}): nothing is cut", last]
    kept = (f"they are kept in {found.side_file}, and cut" if found.side_file is not None
            else f"they go to a side file in {store}/{FOLDER}, and are cut")
    return [f"{found.messages} messages, log positions {found.position} to {found.end}, are not in "
            f"the log of {found.master}",
            kept, *(f"  {topic}: {count}" for topic, count in sorted(found.topics.items())), last]
