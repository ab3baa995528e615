"""`mqcore store repair`: make a store start again that `mqcore store verify` calls damaged."""
from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from mqcore.admin.lines import say
from mqcore.admin.store import DelayLevels, NotChecked, json_option, store_argument
from mqcore.store.ownership import StoreInUseError
from mqcore.store.repair.store import Outcome, repair
from mqcore.store.verify.files import NoLogError
from mqcore.store.verify.report import STATUS_DAMAGED
from mqcore.store.verify.store import DELAY_LEVELS_MS

LINES_MAX = 200


@click.command("repair")
@store_argument
@click.option("--dry-run", "dry", is_flag=True, help="Change nothing, say what would be done.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--lost-found", "folder", type=click.Path(path_type=Path),
              help="Where copies of what is changed go [default: beside the store, with the time].")
@click.option("--index/--no-index", default=True, show_default=True,
              help="Repair the key index; --no-index for a broker that runs without one.")
@click.option("--index-slots", type=click.IntRange(1, 100_000_000), metavar="N",
              help="Hash slots of an index file [default: found out from the files].")
@click.option("--delay-levels", "delay_levels_ms", type=DelayLevels(), default=DELAY_LEVELS_MS,
              show_default="stock's 18 levels", help="The broker's messageDelayLevel.")
@json_option
def repair_command(store: Path, dry: bool, yes: bool, folder: Path | None, as_json: bool,
                   **options: Any) -> None:
    """
    Make STORE, which no broker uses meanwhile, start again after damage.

    Damaged stretches of the commit log are bridged; queues, index and checkpoint that are wrong are
    taken away, the next start writes them anew. Copies of all that is changed or taken away, and a
    report, go to a folder beside the store.

    Exit status, as of verify, after what was done: 0 sound; 3 the next start mends the rest;
    1 damaged, also after a dry run; 2 not looked at.
    """
    if folder is None:
        store = store.absolute()
        folder = store.with_name(f"{store.name}.lost+found-{time.strftime('%Y%m%d-%H%M%S')}")
    if not dry and not yes:
        plan = _repaired(store, folder, dry=True, **options)
        if plan.status != STATUS_DAMAGED:
            _show(plan, folder, as_json=as_json)
        say(_shown(plan.actions), err=True)
        click.confirm(f"Change {store} so? Copies go to {folder}", abort=True, err=True)
    _show(_repaired(store, folder, dry=dry, **options), folder, as_json=as_json)


def _repaired(store: Path, folder: Path, **options: Any) -> Outcome:
    try:
        return repair(store, folder, **options)
    except StoreInUseError as error:
        raise NotChecked(f"{error}; stop it first") from None
    except NoLogError as error:
        raise NotChecked(str(error)) from None
    except OSError as error:
        raise NotChecked(f"{error}. What was changed until then is in {folder}") from error


def _shown(lines: list[str]) -> list[str]:
    rest = len(lines) - LINES_MAX
    return lines[:LINES_MAX] + ([f"... and {rest} more"] if rest > 0 else [])


def _show(outcome: Outcome, folder: Path, *, as_json: bool) -> None:
    """Say what was done, and end with the status."""
    report = outcome.after or outcome.before
    if as_json:
        click.echo(json.dumps({
            "status": outcome.status, "actions": outcome.actions,
            "report": None if outcome.report is None else str(outcome.report),
            **outcome.as_dict()}))
        sys.exit(outcome.status)
    if outcome.before.status != STATUS_DAMAGED:
        click.echo("nothing to repair")
    elif outcome.after is None:
        say(_shown(outcome.actions))
        click.echo("nothing was changed; after the changes to the log it is looked at again, and "
                   "more may follow")
    else:
        say([*_shown(outcome.actions), *(
            finding.line() for finding in report.findings if finding.severity == "damage")])
        click.echo(f"copies of what was changed, and report.json: {folder}")
    click.echo(f"verdict: {outcome.verdict}")
    sys.exit(outcome.status)
