"""``sexton replay``: the incident this program was written for, from the loop's first turn to the proof of its end.

Following it from here: ``care/replay/stage.py`` for what is played, ``care/replay/story.py`` for the scenes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import typer

from sexton.cli.audit import visible


def replay_command(
    rootfs: Path | None = typer.Option(
        None, help="A root file system with systemd to play on. Default: a small Debian, made once by mmdebstrap."
    ),
    json_: bool = typer.Option(False, "--json", help="One JSON object instead of text; see docs/replay.md."),
) -> None:
    """Replay the incident on a throw-away systemd: it loops, leaks, is found, named, disabled and purged.

    Exit code 0: all came out as it should. 1: a scene did not. 2: it cannot be played here. Needs root.
    """
    from sexton.care.replay.stage import ROOTFS, find_rootfs
    from sexton.care.replay.story import Scene, check_scratch, play
    from sexton.host.errors import HostFault

    scenes: list[Scene] = []
    try:
        check_scratch()
        if rootfs is None and not ROOTFS.exists() and not json_:
            _say(f"making {ROOTFS} (once, downloads about 50 MB)\n")
        for scene in play(find_rootfs(rootfs)):
            scenes.append(scene)
            if not json_:
                _say(_scene_text(scene))
    except HostFault as fault:
        typer.echo(f"{fault}. {getattr(fault, 'next_step', '')}".rstrip(), err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("ended early; the guest is gone with all it made", err=True)
        raise typer.Exit(130) from None
    code = 0 if scenes and all(scene.held for scene in scenes) else 1
    if json_:
        said: dict[str, Any] = {"schema": 1, "exit_code": code, "scenes": scenes}
        _say(msgspec.json.encode(said).decode() + "\n")
    else:
        _say("\nas told\n" if code == 0 else "\nNOT as told: see the last scenes\n")
    raise typer.Exit(code)


def _scene_text(scene: Any) -> str:
    lines = [
        f"{scene.at:6.1f} s  {scene.name.upper():<8} {visible(scene.says)}{'' if scene.held else '   <- NOT AS TOLD'}"
    ]
    lines += [f"{'':<18} {visible(detail)}" for detail in scene.details]
    return "\n".join(lines) + "\n"


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
