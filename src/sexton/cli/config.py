"""``sexton config explain``: every setting with its value, where the value comes from, and what it means."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec
import typer

from sexton import settings
from sexton.settings import BadSetting, Loaded, Setting, Unused
from sexton.settings.sources import reasons_of

config = typer.Typer(help="Settings: what is in force, and where it comes from.", no_args_is_help=True)

_NAME = typer.Argument("", help="One variable, or a part of its name; without, all of them.")
_JSON = typer.Option(False, "--json", help="One JSON object per setting instead of a list.")


@config.callback()
def _noun() -> None:
    pass


@config.command("explain")
def explain_command(name: str = _NAME, json_: bool = _JSON) -> None:
    """Say of each setting which value is in force, where it comes from and what it means."""
    try:
        loaded = settings.load(os.environ, settings.CONFIG_FILES)
    except BadSetting as error:
        typer.echo(f"sexton: {error}", err=True)
        raise typer.Exit(2) from None
    for warning in loaded.warnings:
        typer.echo(f"warning: {warning}", err=True)
    wanted = name.upper()
    found = False
    for row in _rows(loaded, wanted):
        found = True
        typer.echo(msgspec.json.encode(row).decode() if json_ else _text(row))
    if not wanted:
        for unknown, reason in reasons_of(loaded.unknown):
            typer.echo(f"without effect: {unknown} ({reason})", err=True)
    elif not found:
        typer.echo(f"sexton: no setting is called '{name}'; 'sexton config explain' lists them all", err=True)
        raise typer.Exit(1)


def _rows(loaded: Loaded, wanted: str) -> Iterator[dict[str, Any]]:
    for one in settings.TABLE:
        if wanted in one.name:
            yield _used(one, loaded)
    for other in settings.UNUSED:
        # Only for those who ask: what has no effect is no news in a list of what has.
        if wanted and wanted in other.name:
            yield _unused(other)


def _used(one: Setting, loaded: Loaded) -> dict[str, Any]:
    value = getattr(loaded.settings, one.field)
    return {
        "name": one.name,
        "value": "hidden" if one.secret and value else shown(value),
        "unit": one.unit,
        "origin": loaded.origins.get(one.field, "default"),
        "meaning": one.doc,
        "default": shown(getattr(settings.Settings(), one.field)),
    }


def _unused(one: Unused) -> dict[str, Any]:
    meaning = f"{one.cause}: {one.reason}"
    return {"name": one.name, "value": "without effect", "unit": "", "origin": "", "meaning": meaning, "default": ""}


def _text(row: dict[str, Any]) -> str:
    if not row["origin"]:
        return f"{row['name']}: without effect\n    {row['meaning']}"
    unit = f" {row['unit']}" if row["unit"] and row["value"] != "unset" else ""
    else_ = "" if row["origin"] == "default" or row["value"] == row["default"] else f"; default {row['default']}"
    return f"{row['name']} = {row['value']}{unit}   ({row['origin']}{else_})\n    {row['meaning']}"


def shown(value: Any) -> str:
    """A value as a person reads it."""
    if value in ("", None, (), {}):
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value
    match value:
        case (str() as host, int() as port):
            return f"{host}:{port}" if port else host
    return msgspec.json.encode(value).decode()
