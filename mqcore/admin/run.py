"""`mqcore up`, `mqcore broker run`, `mqcore namesrv run`: the processes."""
from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from mqcore.broker.settings import exposure
from mqcore.broker.settings import load as broker_settings
from mqcore.broker.settings.model import Settings, SettingsError, bracketed
from mqcore.workers.process import output, signals

if TYPE_CHECKING:
    from mqcore.namesrv.settings import NamesrvSettings

EXIT_SETTINGS = 2
EXIT_START = 1

config_option = click.option(
    "-c", "--config", type=click.Path(dir_okay=False, path_type=Path),
    help="Settings: a TOML file, or a stock broker.conf.")
set_option = click.option(
    "--set", "overrides", multiple=True, metavar="SECTION.KEY=VALUE",
    help="One setting, over all files; may be repeated.")


def fail(text: str, status: int) -> NoReturn:
    """One line on standard error, and the end."""
    output.complain(text)
    end(status)


def end(status: int) -> NoReturn:
    """The end of a process that serves, with this status whatever becomes of its last words."""
    output.give_up()
    sys.exit(status)


def load(config: Path | None, overrides: list[str]) -> Settings:
    """Settings, or the end with status 2."""
    try:
        return broker_settings.load(config, None, overrides)
    except (SettingsError, OSError) as error:
        fail(str(error), EXIT_SETTINGS)


def supervise(
    settings: Settings, read: Callable[[], Settings], *, embedded: bool, verbose: bool = False
) -> NoReturn:
    """
    Run a broker in this process until it ends; read: its settings, as files say them when SIGHUP
    comes; verbose: see `announce`.
    """
    output.occupy_standard_fds()
    signals.ignore_meaningless()
    from mqcore.admin import logs
    from mqcore.participants import SUPERVISOR
    from mqcore.workers.supervisor.supervisor import StartError

    try:
        logs.configure(settings.log.level, settings.log.file, settings.log.format,
                       bytes_max=settings.log.file_bytes_max, count=settings.log.file_count)
        if settings.stock.warning():
            logging.getLogger("mqcore").warning("%s: %s", settings.file, settings.stock.warning())
        process = import_module(SUPERVISOR.module)
        end(process.live(settings, read, embedded=embedded,
                         on_ready=partial(announce, verbose=verbose)))
    except (StartError, OSError) as error:
        fail(str(error), EXIT_START)


def announce(settings: Settings, *, verbose: bool = False) -> None:
    """
    The line that scripts wait for: clients can connect. It comes first and alone on its line.

    verbose, or a terminal: below it a screen for a person; else the log says how to open it.
    """
    names = ";".join(settings.broker.namesrv_addrs) or "none"
    output.tell(f"mqcore ready broker={settings.advertised_addr} namesrv={names} "
                f"store={settings.store.path} flush={settings.store.flush}")
    if verbose or sys.stdout.isatty():
        from mqcore.admin.screen import own_run, screen

        output.tell(f"\n{screen(settings, own_run())}")
    elif text := exposure.hint(settings):
        logging.getLogger("mqcore").info("%s", text)


@click.command()
@config_option
@set_option
@click.option("-v", "--verbose", is_flag=True, help="Show processes and how to try the broker.")
def up(config: Path | None, overrides: tuple[str, ...], verbose: bool) -> None:
    """Run a broker with a name server beside it."""
    settings = load(config, list(overrides))
    supervise(_beside_name_server(settings),
              lambda: _beside_name_server(_loaded_again(config, overrides)),
              embedded=settings.namesrv.embedded, verbose=verbose)


def _loaded_again(config: Path | None, overrides: Sequence[str]) -> Settings:
    """Settings when SIGHUP comes. Raises SettingsError, OSError."""
    _check_is_file(config)
    return broker_settings.load(config, None, overrides)


def _check_is_file(config: Path | None) -> None:
    """A pipe (`-c <(...)`) is empty the second time, or waits for its writer for ever."""
    if config is not None and config.exists() and not config.is_file():
        raise SettingsError(f"{config}: expected a file, to be read again")


def _beside_name_server(settings: Settings) -> Settings:
    """A broker of `mqcore up` registers first with the name server beside it, if there is one."""
    from msgspec.structs import replace

    if not settings.namesrv.embedded:
        return settings
    addresses = (settings.own_namesrv_addr, *settings.broker.namesrv_addrs)
    return replace(settings, broker=replace(settings.broker, namesrv_addrs=addresses))


@click.command()
@config_option
@set_option
@click.option("-n", "--namesrv", metavar="HOST:PORT[;HOST:PORT]",
              help="Name servers to register with.")
def broker(config: Path | None, overrides: tuple[str, ...], namesrv: str | None) -> None:
    """Run a broker that registers with name servers elsewhere."""
    given = list(overrides)
    if namesrv is not None:
        given.append(f"broker.namesrv_addrs={namesrv}")
    supervise(load(config, given), lambda: _loaded_again(config, given), embedded=False)


@click.command()
@click.option("-c", "--config", type=click.Path(dir_okay=False, path_type=Path),
              help="Settings: a TOML file, or a stock namesrv.conf.")
@click.option("-p", "--port", type=click.IntRange(1, 65535), help="Port, over the file's.")
def namesrv(config: Path | None, port: int | None) -> None:
    """Run a name server alone."""
    from msgspec.structs import replace
    from setproctitle import setproctitle

    from mqcore.admin import logs
    from mqcore.namesrv import settings as namesrv_settings
    from mqcore.workers.process.activated import Activated
    from mqcore.workers.serving import namesrv as worker

    output.occupy_standard_fds()
    signals.ignore_meaningless()
    logs.configure("info", "", "text")

    def read() -> tuple[NamesrvSettings, list[str]]:
        settings, ignored = namesrv_settings.load(config)
        return settings if port is None else replace(settings, listen_port=port), ignored

    def read_again() -> NamesrvSettings:
        _check_is_file(config)
        return read()[0]

    try:
        settings, ignored = read()
    except (ValueError, OSError) as error:
        fail(str(error), EXIT_SETTINGS)
    if ignored:
        logging.getLogger("mqcore").warning("%s: keys without effect here: %s", config,
                                            ", ".join(ignored))
    if not (settings.acl.enable or exposure.asks_for_certificates(settings.tls)
            or exposure.is_loopback(settings.listen_host)):
        logging.getLogger("mqcore").warning(
            "%s", exposure.of_name_server(settings.listen_host, settings.listen_port))
    setproctitle("mqcore: namesrv")
    try:
        activated = Activated(os.environ)
        given = activated.take(settings.listen_host, settings.listen_port, "namesrv.listen_port")
        activated.say_unused()
        address = f"{bracketed(settings.listen_host)}:{settings.listen_port}"
        worker.run(settings, given or None, read_again=read_again,
                   ready_callback=lambda: output.tell(f"mqcore ready namesrv={address}"))
        end(0)
    except (OSError, ValueError) as error:
        fail(str(error), EXIT_START)
