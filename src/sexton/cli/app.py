"""The command line: which command is where. Long-running commands are listed here and run by the daemon's own door."""

from __future__ import annotations

import inspect
import os
import sys
from typing import Any

import typer
from typer.core import TyperCommand
from typer.models import ParameterInfo

from sexton import __version__, commandline
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
from sexton.cli.logs import logs
from sexton.cli.net import net_command
from sexton.cli.replay import replay_command
from sexton.cli.tasks import ps, why
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
# What a value is called in help, by its annotation; text is called after its option.
_VALUES = {
    "int": "N",
    "float": "NUMBER",
    "Path": "PATH",
    "Path | None": "PATH",
    "str": "",
    "list[str]": "",
    "list[Path]": "PATH",
}
# What is listed of a command whose own first sentence is too long for a line of 80 columns.
_SUMMARIES = {
    "up": "Run all three roles in one process.",
    "why": "Say why a task is where it is, and what to try next.",
    "events": "Show what changed: tasks, hosts, services.",
    "top": "Show what tasks are promised and use, live.",
    "advise": "Say which definitions ask for too much or too little.",
    "net": "Show tasks' networks, and why a packet passes.",
    "doctor": "Say whether this host is fit.",
    "findings": "List what the caretaker found.",
    "explain": "Tell one finding as an incident, with its evidence.",
    "fix": "Do something about a finding, and prove it helped.",
    "zombies": "Name zombie memory cgroups, and free them.",
    "audit": "Audit the units an image or a host starts.",
    "drift": "Compare two locks, root file systems or hosts.",
    "gate": "Pass or fail the image this host was made from.",
    "replay": "Replay the incident on a throw-away systemd.",
}


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sexton {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


class _Role(TyperCommand):
    """A long-running command. Its options are the daemon's to read; only to be completed they are known here."""

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        assert self.name is not None
        known = {name[2:].replace("-", "_"): text for name, text in commandline.options(self.name).items()}

        def options() -> None:
            pass

        options.__annotations__ = dict.fromkeys(known, str)
        options.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(
                    name, inspect.Parameter.KEYWORD_ONLY, default=typer.Option("", help=text), annotation=str
                )
                for name, text in known.items()
            ]
        )
        whole = typer.Typer(add_completion=False)
        whole.command(add_help_option=False)(options)
        return typer.main.get_command(whole).shell_complete(ctx, incomplete)


def _long_running(role: str, text: str) -> None:
    """List a role; running it replaces this process, so that nothing of the command line stays in memory."""

    def start(context: typer.Context) -> None:
        if role == "control" and context.args[:1] in (["export"], ["import"]):
            backup_app(args=context.args, prog_name="sexton control")
        os.execv(sys.executable, [sys.executable, "-m", "sexton", role, *context.args])  # noqa: S606 - ourselves

    app.command(
        role,
        cls=_Role,
        help=text[0].upper() + text[1:] + ".",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        rich_help_panel=_RUN,
    )(start)


for _role, _text in commandline.ROLES.items():
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


def _name_values(of: typer.Typer) -> None:
    """A word in capitals for each value that has no name of its own: a person gives a TASK, not a str."""
    for group in of.registered_groups:
        if group.typer_instance is not None:
            _name_values(group.typer_instance)
    callbacks = [one.callback for one in of.registered_commands]
    if of.registered_callback is not None:
        callbacks.append(of.registered_callback.callback)
    for callback in callbacks:
        assert callback is not None
        for name, parameter in inspect.signature(callback).parameters.items():
            value, kind = parameter.default, str(parameter.annotation)
            if isinstance(value, ParameterInfo) and value.metavar is None and kind in _VALUES:
                value.metavar = _VALUES[kind] or _last_word(value, name)


def _last_word(value: ParameterInfo, name: str) -> str:
    long = next((one[2:] for one in value.param_decls or () if one.startswith("--")), name)
    return long.strip("_").replace("_", "-").rpartition("-")[2].upper()


def run() -> int:
    """Run one command; its exit code."""
    try:
        for command in app.registered_commands:
            command.short_help = _SUMMARIES.get(command.name or "")
        for group in app.registered_groups:
            group.short_help = _SUMMARIES.get(str(group.name))
        _name_values(app)
        app(prog_name="sexton")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    return 0
