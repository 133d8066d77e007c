"""Writes the parts of the documentation that are a second form of the code: run it after changing either.

Each part replaces what stands between ``<!-- made by scripts/generate_docs.py: NAME -->`` and ``<!-- end -->`` on its
page, so that the words around it stay a person's. ``--check`` writes nothing and says what is out of date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from sexton import settings
from sexton.agent.runner import STEPS
from sexton.care.acting import REMEDIES
from sexton.care.look import PROBES, WATCHERS
from sexton.care.metric_names import METRICS
from sexton.control.dispatch import FIELDS, OPERATIONS
from sexton.control.ec2.service import MODULES as EC2_MODULES
from sexton.control.fields import Fields
from sexton.control.ops import unsupported
from sexton.core.finding import counted
from sexton.core.policy import Policy
from sexton.core.task import FORWARD, REACHES, SHARE, ContainerStatus, Happened, Step, TaskStatus
from sexton.settings import (
    Setting,
    rows_capability,
    rows_care,
    rows_identity,
    rows_network,
    rows_ours,
    rows_pace,
    rows_state,
)
from sexton.wire import ecs

DOCS = Path(__file__).resolve().parent.parent / "docs"


def container_states() -> str:
    """The life of a container, drawn from the transition table."""
    ends = ", ".join(happened for happened, status in REACHES.items() if status is ContainerStatus.STOPPED)
    path = list(FORWARD.items())
    reached = [*(status for status, _ in path[1:]), ContainerStatus.RUNNING]
    lines = []
    for (status, step), target in zip(path, reached, strict=True):
        happened = next(event for event, status in REACHES.items() if status is target)
        lines += [status, "  |", f"  |  {step} -> {happened}", "  v"]
    lines += [ContainerStatus.RUNNING, "  |", f"  |  {Step.STOP} -> {ends}", "  v"]
    lines += [f"{ContainerStatus.STOPPED}   (final; from every state above in one move on {ends})"]
    return "```text\n" + "\n".join(lines) + "\n```"


def steps() -> str:
    """Each step, where it is taken, and the module that does it."""
    rows = ["| step | taken at | done by |", "|---|---|---|"]
    at = {step: f"`{status}`" for status, step in FORWARD.items()}
    at[Step.STOP] = "`CREATED`, `RUNNING`, when the task is to end"
    rows += [f"| `{step}` | {at[step]} | `{_path(do.__module__)}` |" for step, do in STEPS.items()]
    return "\n".join(rows)


def events() -> str:
    """Where an event can take a container, and what it never does."""
    rows = ["| event | raises a container to |", "|---|---|"]
    rows += [f"| `{happened}` | `{REACHES[happened]}` |" for happened in Happened]
    return "\n".join(rows)


def task_states() -> str:
    """What each container contributes to the state of its task."""
    rows = ["| container is | its task is at most |", "|---|---|"]
    rows += [f"| `{status}` | `{SHARE[status]}` |" for status in ContainerStatus]
    order = " < ".join(f"`{status}`" for status in TaskStatus)
    return "\n".join([*rows, "", f"In order: {order}."])


def setting_table(topic: tuple[Setting, ...]) -> str:
    """Every setting of a topic."""
    rows = ["| variable | meaning | default |", "|---|---|---|"]
    for one in topic:
        default = _shown(getattr(settings.Settings(), one.field), one.unit)
        bounds = ""
        if one.minimum is not None:
            less = "counts as unset" if one.below_is_unset else "is raised to it"
            bounds = f"; at least {one.minimum:g} {one.unit}, less {less}"
        if one.maximum is not None:
            bounds += f"; at most {one.maximum:g} {one.unit}, more is lowered to it"
        strict = "; a bad value ends the start" if one.strict else ""
        rows.append(f"| `{one.name}` | {one.doc}{bounds}{strict} | {default} |")
    return "\n".join(rows)


def unused_settings() -> str:
    """Every variable of Amazon's agent that changes nothing here."""
    rows = ["| variable | why |", "|---|---|"]
    rows += [f"| `{one.name}` | {one.cause}: {one.reason} |" for one in settings.UNUSED]
    return "\n".join(rows)


def _shown(value: Any, unit: str) -> str:
    if value in ("", None, (), {}):
        return "unset"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        value = f"{value[0]}:{value[1]}"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode().removesuffix(".0")
    return f"`{text}`" + (f" {unit}" if unit else "")


def operations() -> str:
    """Every operation of the API: served, and by what; refused for good; or not yet."""
    served = [name for name in ecs.OPERATIONS if name in OPERATIONS and name not in unsupported.OPERATIONS]
    rows = [
        f"{len(served)} of {len(ecs.OPERATIONS)} operations are served.",
        "",
        "| operation | |",
        "|---|---|",
    ]
    for name in ecs.OPERATIONS:
        by = "not yet"
        if name in unsupported.OPERATIONS:
            by = "refused: part of AWS's own infrastructure"
        elif name in OPERATIONS:
            by = f"served by `{_path(OPERATIONS[name].__module__)}`"
        rows.append(f"| {name} | {by} |")
    return "\n".join(rows)


def fields() -> str:
    """Every field of every operation that is served: honoured, accepted without effect, or refused, and why."""
    lines = []
    for name in ecs.OPERATIONS:
        if name not in OPERATIONS or name in unsupported.OPERATIONS:
            continue
        declared = FIELDS.get(name, Fields())
        members = [one.encode_name for one in msgspec.structs.fields(ecs.OPERATIONS[name].request)]
        paths = sorted({*members, *declared.accepted, *declared.refused})
        lines += [f"### {name}", "", "| field | |", "|---|---|"]
        for path in paths:
            if path in declared.refused:
                said = f"refused: {declared.refused[path]}"
            elif path in declared.accepted:
                said = f"accepted without effect: {declared.accepted[path]}"
            else:
                said = "honoured"
            lines.append(f"| `{path}` | {said} |")
        lines.append("")
    return "\n".join(lines[:-1])


def _path(module: str) -> str:
    return module.removeprefix("sexton.").replace(".", "/") + ".py"


def metrics() -> str:
    """What a caretaker publishes."""
    rows = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for one in METRICS:
        labels = ", ".join(f"`{label}`" for label in one.labels)
        rows.append(f"| `{one.name}` | {one.kind} | {labels} | {one.help} |")
    return "\n".join(rows)


def probes() -> str:
    """What one look reads, how often a daemon looks, and what that costs."""
    rows = ["| probe | reads | cost | every |", "|---|---|---|---|"]
    rows += [f"| `{one.name}` | {'; '.join(one.reads)} | {one.cost} | {one.every:g} s |" for one in PROBES]
    return "\n".join(rows)


def watchers() -> str:
    """What a daemon listens to besides."""
    rows = ["| watcher | listens to | cost |", "|---|---|---|"]
    rows += [f"| `{one.name}` | {'; '.join(one.reads)} | {one.cost} |" for one in WATCHERS]
    return "\n".join(rows)


def remedies() -> str:
    """What a caretaker can do, and how far a rule lets it go unless the policy says otherwise."""
    rows = ["| remedy | answers | may touch | unless the rule says otherwise |", "|---|---|---|---|"]
    for one in REMEDIES:
        rule = Policy().remedies.of(one.name)
        answers = ", ".join(f"`{pattern}`" for pattern in one.answers)
        bounds = f"{rule.seconds:g} s, {counted(rule.most_touched, 'thing')} at once, {rule.per_day} times a day"
        rows.append(f"| `{one.name}` | {answers} | {one.touches} | {bounds} |")
    return "\n".join(rows)


def ec2_actions() -> str:
    """What of EC2 is served, and with which parameters."""
    rows = ["| action | parameters |", "|---|---|"]
    served = {name: operation.request for module in EC2_MODULES for name, operation in module.OPERATIONS.items()}
    for name, request in sorted(served.items()):
        known = sorted(one.encode_name for one in msgspec.structs.fields(request))
        rows.append(f"| `{name}` | {', '.join(known)} |")
    return "\n".join(rows)


PARTS: dict[tuple[str, str], Callable[[], str]] = {
    ("flow-of-a-task.md", "container states"): container_states,
    ("flow-of-a-task.md", "steps"): steps,
    ("flow-of-a-task.md", "events"): events,
    ("flow-of-a-task.md", "task states"): task_states,
    ("settings.md", "identity"): partial(setting_table, rows_identity.ROWS),
    ("settings.md", "state"): partial(setting_table, rows_state.ROWS),
    ("settings.md", "capability"): partial(setting_table, rows_capability.ROWS),
    ("settings.md", "network"): partial(setting_table, rows_network.ROWS),
    ("settings.md", "pace"): partial(setting_table, rows_pace.ROWS),
    ("settings.md", "ours"): partial(setting_table, rows_ours.ROWS),
    ("settings.md", "care"): partial(setting_table, rows_care.ROWS),
    ("moving.md", "unused"): unused_settings,
    ("api.md", "operations"): operations,
    ("api-fields.md", "fields"): fields,
    ("metrics.md", "metrics"): metrics,
    ("doctor.md", "probes"): probes,
    ("care.md", "watchers"): watchers,
    ("care.md", "remedies"): remedies,
    ("network.md", "ec2"): ec2_actions,
}


def render(page: str) -> str:
    """A page with its parts made anew."""
    text = (DOCS / page).read_text()
    for (where, name), make in PARTS.items():
        if where == page:
            head = f"<!-- made by scripts/generate_docs.py: {name} -->"
            pattern = re.compile(re.escape(head) + r".*?<!-- end -->", re.DOTALL)
            parts = pattern.split(text)
            if len(parts) != 2:
                raise SystemExit(f"cannot find the place of '{name}' in docs/{page}: it needs the line {head}")
            text = f"{parts[0]}{head}\n\n{make()}\n\n<!-- end -->{parts[1]}"
    return text


def main() -> int:
    stale = [page for page in dict.fromkeys(page for page, _ in PARTS) if render(page) != (DOCS / page).read_text()]
    if "--check" in sys.argv[1:]:
        for page in stale:
            print(f"docs/{page} is out of date: run python scripts/generate_docs.py")
        return 1 if stale else 0
    for page in stale:
        (DOCS / page).write_text(render(page))
        print(f"wrote docs/{page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
