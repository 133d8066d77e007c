"""``sexton settings``: every setting with its value, where the value comes from, and what it means."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import typer

from sexton import settings
from sexton.settings import BadSetting


def settings_command(
    json_: bool = typer.Option(False, "--json", help="One JSON object per setting instead of a list."),
) -> None:
    """List every setting with its value, its origin and its meaning."""
    try:
        loaded = settings.load(os.environ, settings.CONFIG_FILES)
    except BadSetting as error:
        typer.echo(f"sexton: {error}", err=True)
        raise typer.Exit(2) from None
    for warning in loaded.warnings:
        typer.echo(f"warning: {warning}", err=True)
    for one in settings.TABLE:
        row = {
            "name": one.name,
            "value": _shown(getattr(loaded.settings, one.field)),
            "unit": one.unit,
            "origin": loaded.origins.get(one.field, "default"),
            "meaning": one.doc,
        }
        if json_:
            typer.echo(msgspec.json.encode(row).decode())
        else:
            unit = f" {one.unit}" if one.unit else ""
            typer.echo(f"{one.name} = {row['value']}{unit}   ({row['origin']})\n    {one.doc}")


def _shown(value: Any) -> str:
    if value in ("", None, (), {}):
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
