"""``sexton keys``: access keys and what they may do."""

from __future__ import annotations

import re
import sys
import time

import msgspec
import typer

from sexton.cli.own import ask
from sexton.core.roles import MEANING, Role
from sexton.core.values import BadValue, duration
from sexton.wire.ownkeys import CreateKey, KeyShown, KeysShown, RotateKey

keys_app = typer.Typer(no_args_is_help=True, help="Make, list, switch off and replace access keys.")

_ID = typer.Argument(metavar="KEY", help="The access key's id.")
_JSON = typer.Option(False, "--json", help="One JSON object a key.")


@keys_app.command("create")
def create(
    role: str = typer.Option(..., "--role", metavar="|".join(Role), help="What the key may do."),
    name: str = typer.Option("", "--name", help="Whose it is, or what for."),
    instance: str = typer.Option(
        "", "--instance", metavar="ARN", help="Of an agent's key: its container instance, when that is registered."
    ),
    json_: bool = _JSON,
) -> None:
    """Make a key; its secret is shown now and never again."""
    if role not in set(Role):
        raise typer.BadParameter(f"say one of {', '.join(Role)}", param_hint="--role")
    made = ask("POST", "/sexton/keys", KeyShown, CreateKey(role=role, name=name, instance=instance))
    _show_secret(made, json_)


@keys_app.command("list")
def listing(json_: bool = _JSON) -> None:
    """List every key, without its secret."""
    keys = ask("GET", "/sexton/keys", KeysShown).keys
    if json_:
        for one in keys:
            typer.echo(msgspec.json.encode(one).decode())
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("KEY", "ROLE", "STATUS", "NAME", "MADE", "BELONGS TO"):
        table.add_column(heading, overflow="fold")
    for one in keys:
        made = time.strftime("%Y-%m-%d %H:%M", time.gmtime(one.created_at))
        belongs = "this control plane" if one.own else one.instance
        table.add_row(one.access_key_id, one.role, _status(one), one.name, made, belongs)
    Console(width=None if sys.stdout.isatty() else 240, highlight=False, markup=False).print(table)


def _status(key: KeyShown) -> str:
    if key.ends_at:
        return f"ends {time.strftime('%Y-%m-%d %H:%M', time.gmtime(key.ends_at))}"
    return key.status.lower()


@keys_app.command("disable")
def disable(key: str = _ID) -> None:
    """Stop accepting a key, at once."""
    _say(ask("POST", f"/sexton/keys/{_path(key)}/disable", KeyShown), "disabled")


@keys_app.command("enable")
def enable(key: str = _ID) -> None:
    """Accept a disabled key again."""
    _say(ask("POST", f"/sexton/keys/{_path(key)}/enable", KeyShown), "enabled")


@keys_app.command("delete")
def delete(key: str = _ID) -> None:
    """Delete a key, at once and for ever."""
    _say(ask("DELETE", f"/sexton/keys/{_path(key)}", KeyShown), "deleted")


@keys_app.command("rotate")
def rotate(
    key: str = _ID,
    grace: str = typer.Option("1h", "--grace", help="How long the old one is accepted beside the new one; 0s: not."),
    json_: bool = _JSON,
) -> None:
    """Make a key in the place of another: the same role and container instance, a new id and secret."""
    try:
        seconds = duration(grace)
    except BadValue as error:
        raise typer.BadParameter(str(error), param_hint="--grace") from None
    _show_secret(ask("POST", f"/sexton/keys/{_path(key)}/rotate", KeyShown, RotateKey(grace_seconds=seconds)), json_)


def _path(key: str) -> str:
    """An id that is one, so that nothing else gets into the path."""
    if not re.fullmatch(r"[A-Za-z0-9]{1,128}", key):
        raise typer.BadParameter("give the id of an access key, as 'sexton keys list' shows it", param_hint="KEY")
    return key


def _say(key: KeyShown, what: str) -> None:
    typer.echo(f"{key.access_key_id} is {what}")


def _show_secret(key: KeyShown, json_: bool) -> None:
    """As lines that a shell, an env file and a person can read."""
    if json_:
        typer.echo(msgspec.json.encode(key).decode())
        return
    typer.echo(f"AWS_ACCESS_KEY_ID={key.access_key_id}")
    typer.echo(f"AWS_SECRET_ACCESS_KEY={key.secret_access_key}")
    typer.echo(f"The key {MEANING[Role(key.role)]}. Keep the secret: it is not shown again.", err=True)
