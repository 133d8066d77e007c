"""The command line: which command is where. Long-running commands are listed here and run by the daemon's own door."""

from __future__ import annotations

import os
import sys

import typer

from sexton import __version__, daemon
from sexton.cli.advise import advise_command
from sexton.cli.audit import audit_command
from sexton.cli.backup import backup_app
from sexton.cli.config import config
from sexton.cli.doctor import doctor_command
from sexton.cli.drift import drift_command
from sexton.cli.events import events
from sexton.cli.findings import explain_command, findings_app, fix_command
from sexton.cli.gate import gate_command
from sexton.cli.keys import keys_app
from sexton.cli.net import net_command
from sexton.cli.replay import replay_command
from sexton.cli.tasks import logs, ps, why
from sexton.cli.top import top
from sexton.cli.zombies import zombies_command

app = typer.Typer(
    name="sexton",
    help="Runs containers like Amazon ECS, on this host or many, and keeps the host fit.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_RUN = "Run"
_LOOK = "Look"
_ACT = "Repair"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sexton {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def _long_running(role: str, text: str) -> None:
    """List a role; running it replaces this process, so that nothing of the command line stays in memory."""

    def start(context: typer.Context) -> None:
        if role == "control" and context.args[:1] in (["export"], ["import"]):
            backup_app(args=context.args, prog_name="sexton control")
        os.execv(sys.executable, [sys.executable, "-m", "sexton", role, *context.args])  # noqa: S606 - ourselves

    app.command(
        role,
        help=text[0].upper() + text[1:] + ".",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        rich_help_panel=_RUN,
    )(start)


for _role, _text in daemon.ROLES.items():
    _long_running(_role, _text)

app.command("ps", rich_help_panel=_LOOK)(ps)
app.command("why", rich_help_panel=_LOOK)(why)
app.command("logs", rich_help_panel=_LOOK)(logs)
app.command("events", rich_help_panel=_LOOK)(events)
app.command("top", rich_help_panel=_LOOK)(top)
app.command("advise", rich_help_panel=_LOOK)(advise_command)
app.command("net", rich_help_panel=_LOOK)(net_command)
app.command("doctor", rich_help_panel=_LOOK)(doctor_command)
app.add_typer(findings_app, name="findings", rich_help_panel=_LOOK)
app.command("explain", rich_help_panel=_LOOK)(explain_command)
app.command("fix", rich_help_panel=_ACT)(fix_command)
app.command("zombies", rich_help_panel=_LOOK)(zombies_command)
app.command("audit", rich_help_panel=_LOOK)(audit_command)
app.command("drift", rich_help_panel=_LOOK)(drift_command)
app.command("gate", rich_help_panel=_LOOK)(gate_command)
app.command("replay", rich_help_panel=_LOOK)(replay_command)
app.add_typer(config, name="config", rich_help_panel=_LOOK)

app.add_typer(keys_app, name="keys", rich_help_panel=_RUN)


def run() -> int:
    """Run one command; its exit code."""
    try:
        app(prog_name="sexton")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    return 0
