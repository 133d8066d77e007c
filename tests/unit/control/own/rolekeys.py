"""Keys of local roles for tests: a roles file, and callers who sign with a role's keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sexton.cloud.credentials import Credentials
from sexton.control.app import ControlPlane

ARN = "arn:aws:iam::123456789012:role/"


def statement(effect: str = "Allow", action: Any = "*", resource: Any = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": effect, "Action": action, "Resource": resource} | more


def document(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def write_roles(path: Path, **roles: list[dict[str, Any]]) -> Path:
    """A roles file with local roles of these names, each with its statements."""
    parts = [
        f'[[role]]\narn = "{ARN}{name.replace("_", "-")}"\nsource = "local"\n'
        f"policy = '''{document(*statements)}'''\n"
        for name, statements in roles.items()
    ]
    path.write_text("\n".join(parts))
    path.chmod(0o600)
    return path


async def keys_of(control: ControlPlane, role: str, name: str = "task-1") -> Credentials:
    """Fresh keys of a role."""
    assert control.role_keys is not None
    return (await control.role_keys.issue(ARN + role, name)).credentials
