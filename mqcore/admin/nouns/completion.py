"""`mqcore completion`: the script by which a shell completes commands and names."""
from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = {
    "bash": 'eval "$(mqcore completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(mqcore completion zsh)"    # in ~/.zshrc',
    "fish": "mqcore completion fish | source     # in ~/.config/fish/config.fish",
}
VARIABLE = "_MQCORE_COMPLETE"


@click.command("completion", epilog="\b\n" + "\n".join(SHELLS.values()))
@click.argument("shell", type=click.Choice(sorted(SHELLS)))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print the script that lets a shell complete commands, options, topics and groups."""
    made = get_completion_class(shell)
    assert made is not None
    root = ctx.find_root().command
    click.echo(made(root, {}, "mqcore", VARIABLE).source())
