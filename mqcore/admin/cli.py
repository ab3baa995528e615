"""The `mqcore` command: nouns and verbs; each part is loaded when it is asked for."""
from __future__ import annotations

import click

from mqcore import __version__
from mqcore.admin.shell.lazy import HELP, group
from mqcore.admin.shell.standard import Program

_HERE = "mqcore.admin.cli"
_NOUNS = "mqcore.admin.nouns"

COMMANDS = {
    "up": ("mqcore.admin.run", "up", "Run a broker with a name server beside it."),
    "status": ("mqcore.admin.status", "status",
               "Processes and figures of the brokers of this machine."),
    "topic": (f"{_NOUNS}.topic", "topic_group",
              "Topics: ls, show, create, edit, rm, clean, queue."),
    "group": (f"{_NOUNS}.group", "group_group",
              "Consumer groups: ls, show, create, edit, pause, resume, rm, stack, plan."),
    "offset": (f"{_NOUNS}.offset", "offset_group",
               "Committed offsets: show, reset, copy, export, import."),
    "message": (_HERE, "message_group",
                "Messages: send, consume, get, find, tail, trace, resend."),
    "dlq": (f"{_NOUNS}.dlq", "dlq_group", "Dead letters: ls, show, export, redrive, purge."),
    "transaction": (f"{_NOUNS}.transaction", "transaction_group",
                    "Undecided transactions: ls, show, check, rollback."),
    "check": (f"{_NOUNS}.check", "check_group",
              "Checks for monitoring: ready, lag, stalled, dlq, disk."),
    "client": (f"{_NOUNS}.client", "client_group", "Connected clients: ls."),
    "cluster": (f"{_NOUNS}.cluster", "cluster_group",
                "The cluster: show, health, test, export, diff, apply."),
    "broker": (_HERE, "broker_group", "Brokers: run, show, set, drain, undrain, gc."),
    "namesrv": (_HERE, "namesrv_group", "Name servers: run, show, set, kv."),
    "replication": ("mqcore.admin.replication", "replication_group",
                    "Masters and slaves: status, promote, demote, rejoin."),
    "acl": (_HERE, "acl_group",
            "Accounts: user, rm, white, versions; files: init, check, ls, test, allow."),
    "store": (_HERE, "store_group",
              "Store directories: verify, repair, backup, restore, stat, dump."),
    "top": (f"{_NOUNS}.top", "top_command", "Rates, latency and lag, every second."),
    "dashboard": ("mqcore.page.command", "dashboard_command",
                  "The page for browsers, for any cluster."),
    "context": (f"{_NOUNS}.context", "context_group",
                "Clusters by name: ls, show, add, use, rm, check."),
    "debug": (_HERE, "debug_group", "Looking for causes: bundle, slow."),
    "completion": (f"{_NOUNS}.completion", "completion_command",
                   "Completion for bash, zsh and fish."),
    "cheat": (f"{_NOUNS}.cheat", "cheat_command",
              "Tasks in the words of mqadmin, Kafka and NATS."),
    "mqadmin": (f"{_NOUNS}.mqadmin", "mqadmin_command",
                "The command that replaces one of mqadmin's."),
    "spark": ("mqcore.spark.jobs.command", "spark_group", "Jobs on Spark."),
    "testing": ("mqcore.testing.command", "testing_group",
                "A broker for the tests of an application."),
    "bench": ("mqcore.bench.commands", "bench_group", "Measure a broker."),
}

# -- nouns whose verbs are in several modules: a broker that runs loads no client ------------------

message_group = group("message", {
    "send": (f"{_NOUNS}.message_send", "send_command", "Send messages."),
    "consume": (f"{_NOUNS}.message_send", "consume_command", "Consume messages of a group."),
    "get": (f"{_NOUNS}.message", "get_command", "Messages by id, by key, or by their place."),
    "find": (f"{_NOUNS}.message", "find_command", "Messages by time, tag, condition or text."),
    "tail": (f"{_NOUNS}.message", "tail_command", "Messages as they come."),
    "trace": (f"{_NOUNS}.message", "trace_command", "Sends and tries of a message."),
    "spans": (f"{_NOUNS}.message_spans", "spans_command", "Traces of clients, to a collector."),
    "resend": (f"{_NOUNS}.message", "resend_command", "Send a stored message again."),
    "recall": (f"{_NOUNS}.timed", "recall_command", "Take back what is not delivered yet."),
    "timed": (f"{_NOUNS}.timed", "timed_command", "Messages that wait for a time of delivery."),
}, "Messages: send and consume, find and look into stored ones.")

broker_group = group("broker", {
    "run": ("mqcore.admin.run", "broker", "Run a broker that registers with name servers."),
    "show": (f"{_NOUNS}.broker", "show_command", "State or settings of a broker."),
    "set": (f"{_NOUNS}.broker", "set_command", "Change settings of running brokers."),
    "drain": (f"{_NOUNS}.broker", "drain_command", "Let producers send elsewhere."),
    "undrain": (f"{_NOUNS}.broker", "undrain_command", "Let producers send to it again."),
    "gc": (f"{_NOUNS}.broker", "gc_command", "Delete expired files of the commit log now."),
}, "Brokers: run one; look at and change running ones.", verb="run")

namesrv_group = group("namesrv", {
    "run": ("mqcore.admin.run", "namesrv", "Run a name server."),
    "show": (f"{_NOUNS}.namesrv", "show_command", "Settings of a name server."),
    "set": (f"{_NOUNS}.namesrv", "set_command", "Change settings of name servers."),
    "kv": (f"{_NOUNS}.namesrv", "kv_group", "Key-values: ls, get, set, rm."),
}, "Name servers: run one; look at and change running ones.", verb="run")

acl_group = group("acl", {
    "init": ("mqcore.admin.access", "init", "Write a first file, with random keys."),
    "check": ("mqcore.admin.access", "check", "Read files as a broker would."),
    "ls": ("mqcore.admin.access_files", "list_command", "Accounts of files, with what each may."),
    "test": ("mqcore.admin.access_files", "test_command", "Whether an account may do something."),
    "allow": ("mqcore.admin.access_files", "allow_command", "Give an account permissions."),
    "user": (f"{_NOUNS}.acl", "user_command", "Create or change an account of running brokers."),
    "rm": (f"{_NOUNS}.acl", "remove_command", "Delete an account of running brokers."),
    "white": (f"{_NOUNS}.acl", "white_command", "Set addresses that need no account."),
    "versions": (f"{_NOUNS}.acl", "versions_command", "The access files of each broker."),
}, "Accounts of running brokers, and the files that hold them (acl.enable, acl.folder).")

store_group = group("store", {
    "verify": ("mqcore.admin.store", "verify_command", "Check a store directory at rest."),
    "repair": ("mqcore.admin.repair", "repair_command",
               "Make a damaged store directory start again."),
    "backup": ("mqcore.admin.backup", "backup_command",
               "Copy a store directory, also beside a running broker."),
    "restore": ("mqcore.admin.backup", "restore_command",
                "Make a store directory of a backup."),
    "stat": ("mqcore.admin.store", "stat", "Queues of a store, with their messages."),
    "dump": ("mqcore.admin.store", "dump", "Records of a store as JSON lines."),
}, "Store directories: check, repair, back up, look into.")


debug_group = group("debug", {
    "bundle": (f"{_NOUNS}.debug", "bundle_command",
               "Versions, settings, tables, figures and ends of logs in one file."),
    "slow": (f"{_NOUNS}.debug_slow", "slow_command",
             "Where the time of slow requests of a broker of this machine went."),
}, "Looking for causes: bundle, slow.")


SHORT = {
    name: noun.table[name]
    for noun, names in ((message_group, ("send", "consume")),
                        (store_group, ("verify", "repair", "backup", "restore")))
    for name in names
}


UNDONE = dict.fromkeys(("store", "spark", "verify", "repair", "backup", "restore"), 2)


@click.command(cls=Program, commands=COMMANDS, short=SHORT, undone=UNDONE, context_settings=HELP)
@click.version_option(__version__, prog_name="mqcore")
def main() -> None:
    """A message broker for RocketMQ clients, and its administration."""


if __name__ == "__main__":
    main()
