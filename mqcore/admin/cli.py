"""The `mqcore` command: each part is loaded when it is asked for."""
from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from mqcore import __version__
from mqcore.wire.printable import printable

COMMANDS = {                       # name -> module, object, one line for the overview
    "up": ("mqcore.admin.run", "up", "Run a broker with a name server beside it."),
    "broker": ("mqcore.admin.run", "broker",
               "Run a broker that registers with name servers elsewhere."),
    "namesrv": ("mqcore.admin.run", "namesrv", "Run a name server alone."),
    "status": ("mqcore.admin.status", "status", "Show a running broker's processes and figures."),
    "topic": ("mqcore.admin.nouns.topic", "topic_group",
              "Topics: ls, show, create, edit, rm, clean, queue."),
    "group": ("mqcore.admin.nouns.group", "group_group",
              "Consumer groups: ls, show, create, edit, pause, resume, rm, stack, plan."),
    "offset": ("mqcore.admin.nouns.offset", "offset_group",
               "Committed offsets: show, reset, copy, export, import."),
    "message": ("mqcore.admin.nouns.message", "message_group",
                "Messages: get, find, tail, trace, resend."),
    "client": ("mqcore.admin.nouns.client", "client_group", "Connected clients: ls."),
    "cluster": ("mqcore.admin.nouns.cluster", "cluster_group",
                "The cluster: show, test, export, diff, apply."),
    "context": ("mqcore.admin.nouns.context", "context_group",
                "Clusters by name: ls, show, add, use, rm, check."),
    "acl": ("mqcore.admin.access", "acl_group", "Access files: init, check."),
    "send": ("mqcore.admin.messages", "send_command", "Send messages."),
    "consume": ("mqcore.admin.messages", "consume_command", "Consume messages."),
    "transaction": ("mqcore.admin.transactions", "transaction_group",
                    "Undecided transactions: list, show, check, rollback."),
    "replication": ("mqcore.admin.replication", "replication_group",
                    "Masters and slaves: status, promote, demote, rejoin."),
    "verify": ("mqcore.admin.store", "verify_command", "Check a store directory at rest."),
    "repair": ("mqcore.admin.repair", "repair_command",
               "Make a damaged store directory start again."),
    "backup": ("mqcore.admin.backup", "backup_command",
               "Copy a store directory, also beside a running broker."),
    "restore": ("mqcore.admin.backup", "restore_command", "Make a store directory of a backup."),
    "store": ("mqcore.admin.store", "store_group", "Look into a store directory: stat, dump."),
    "spark": ("mqcore.spark.jobs.command", "spark_group", "Jobs on Spark."),
    "testing": ("mqcore.testing.command", "testing_group",
                "A broker for the tests of an application."),
    "bench": ("mqcore.bench.commands", "bench_group", "Measure a broker."),
}


class LazyGroup(click.Group):
    """Imports a command's module only to run or explain that command: starting stays quick."""

    def invoke(self, ctx: click.Context) -> Any:
        """What goes wrong is told in words of files and peers, too; a terminal obeys none."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            vars(error)["message"] = "\n".join(map(printable, error.message.split("\n")))
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name, _ = COMMANDS[cmd_name]
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mqcore")
def main() -> None:
    """A message broker that unmodified RocketMQ 4.x clients use as it is."""


if __name__ == "__main__":
    main()
