"""Write the shapes of ECS and of CloudWatch Logs, and their constraints, from botocore's service models.

A model is an API's own description of itself: every operation, structure, enum and limit. Copying it by hand would
drift, so two modules for each service are written from it and committed, and a test writes them again in memory and
compares:

- ``src/sexton/wire/ecs.py``: one frozen struct for each structure, one StrEnum for each enum, the table of operations;
- ``src/sexton/wire/ecs_agent.py``: what of it an agent speaks, which ``ecs.py`` takes over, so that an agent that runs
  for months does not hold the rest;
- ``src/sexton/wire/constraints_table.py``: what requests must satisfy, as plain data for ``wire/constraints.py``;
- ``src/sexton/wire/logs.py``, ``src/sexton/wire/logs_table.py``: the same of the operations of CloudWatch Logs that are
  served, and the names of the others.

botocore is needed here only; nothing under ``src`` imports it. Documentation text of the model is left out on purpose.

    python scripts/generate_wire.py            write all files
    python scripts/generate_wire.py --check    exit 1 and name the file if a committed one is stale
"""

from __future__ import annotations

import argparse
import keyword
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

Model = Mapping[str, Any]
Shape = Mapping[str, Any]

WIRE = Path(__file__).resolve().parent.parent / "src" / "sexton" / "wire"

# Words the service spells with inner capitals; without these, GiB becomes gi_b and VCpu becomes v_cpu.
UNBROKEN = {"GiB": "Gib", "MiB": "Mib", "VCpu": "Vcpu", "vCpu": "vcpu"}

SCALARS = {
    "string": "str",
    "integer": "Int32",
    "long": "Int64",
    "double": "float",
    "float": "float",
    "boolean": "bool",
    "timestamp": "float",
}

# Names the generated module needs for itself; a shape of the same name would silently replace one.
RESERVED = frozenset(
    {"Int32", "Int64", "JsonValue", "Mapping", "NamedTuple", "OPERATIONS", "Operation", "StrEnum", "Struct"}
    | {"TARGET_PREFIX", "field"}
)

# The operations of ECS that an agent calls while it runs.
OF_AGENTS = (
    "CreateCluster",
    "DiscoverPollEndpoint",
    "GetTaskProtection",
    "ListTagsForResource",
    "RegisterContainerInstance",
    "SubmitTaskStateChange",
    "UpdateContainerInstancesState",
    "UpdateTaskProtection",
)

# The operations of CloudWatch Logs that this control plane serves.
LOGS_SERVED = (
    "CreateLogGroup",
    "CreateLogStream",
    "DeleteLogGroup",
    "DeleteLogStream",
    "DeleteRetentionPolicy",
    "DescribeLogGroups",
    "DescribeLogStreams",
    "FilterLogEvents",
    "GetLogEvents",
    "ListTagsForResource",
    "ListTagsLogGroup",
    "PutLogEvents",
    "PutLogGroupDeletionProtection",
    "PutRetentionPolicy",
    "TagLogGroup",
    "TagResource",
    "UntagLogGroup",
    "UntagResource",
)

# Members that agents send or understand but the published model leaves out. Without them a request would lose what the
# agent said.
UNPUBLISHED = {
    "DiscoverPollEndpointRequest": ("zoneId",),
    "DiscoverPollEndpointResponse": ("systemLogsEndpoint",),
    "RegisterContainerInstanceRequest": ("clientToken",),
}

# Python's re has no Unicode property classes. \w is letters, numbers and the underscore; separators are listed.
PROPERTIES = {r"\p{L}": r"\w", r"\p{N}": r"\d", r"\p{Z}": r" \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"}


def load_model() -> Model:
    """The ECS service model that the installed botocore carries, with the unpublished members added."""
    from botocore.loaders import Loader  # type: ignore[import-untyped]

    model: Model = Loader().load_service_model("ecs", "service-2")
    for name, added in UNPUBLISHED.items():
        members = model["shapes"][name]["members"]
        for member in added:
            if member in members:
                raise ValueError(f"cannot add {member} to {name}: the model has it now, take it out of UNPUBLISHED")
            members[member] = {"shape": "String"}
    return model


def load_logs_model() -> Model:
    """The model of CloudWatch Logs, of what is served: the other operations and their shapes are left out."""
    from botocore.loaders import Loader

    model: Model = Loader().load_service_model("logs", "service-2")
    unknown = sorted(set(LOGS_SERVED) - set(model["operations"]))
    if unknown:
        raise ValueError(f"cannot serve {', '.join(unknown)}: the model of CloudWatch Logs has no such operation")
    others = sorted(set(model["operations"]) - set(LOGS_SERVED))
    return {**part_of(model, LOGS_SERVED), "others": others}


def part_of(model: Model, names: Collection[str]) -> Model:
    """A model of these operations alone, with the shapes they are made of."""
    operations = {name: model["operations"][name] for name in names}
    queue = [
        operation[part]["shape"]
        for operation in operations.values()
        for part in ("input", "output")
        if part in operation
    ]
    reachable: set[str] = set()
    while queue:
        name = queue.pop()
        if name not in reachable:
            reachable.add(name)
            queue += inner_shapes(model["shapes"][name])
    shapes = {name: model["shapes"][name] for name in reachable}
    return {"metadata": model["metadata"], "operations": operations, "shapes": shapes}


def inner_shapes(shape: Shape) -> list[str]:
    """The shapes that a shape is made of."""
    found = [member["shape"] for member in shape.get("members", {}).values()]
    return found + [shape[part]["shape"] for part in ("member", "key", "value") if part in shape]


def snake(name: str) -> str:
    """``enableECSManagedTags`` -> ``enable_ecs_managed_tags``."""
    for spelt, plain in UNBROKEN.items():
        name = name.replace(spelt, plain)
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name).lower()
    return f"{name}_" if keyword.iskeyword(name) else name


def camel(name: str) -> str:
    """What msgspec's ``rename="camel"`` makes of a field name."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def enum_member(value: str) -> str:
    """``json-file`` -> ``JSON_FILE``, ``EssentialContainerExited`` -> ``ESSENTIAL_CONTAINER_EXITED``."""
    words = re.sub(r"[^A-Za-z0-9]+", "_", value)
    name = words if words.isupper() else snake(words)
    name = name.upper().strip("_")
    return name if name.isidentifier() else f"V_{name}"


def is_enum(shape: Shape) -> bool:
    return shape["type"] == "string" and "enum" in shape


def is_document(shape: Shape) -> bool:
    return bool(shape.get("document"))


def structures(model: Model) -> Iterator[tuple[str, Shape]]:
    """Structures that become a class, in name order. Errors have their own module; a document is any JSON value."""
    for name, shape in sorted(model["shapes"].items()):
        if shape["type"] == "structure" and not shape.get("exception") and not is_document(shape):
            yield name, shape


def enums(model: Model) -> Iterator[tuple[str, Shape]]:
    for name, shape in sorted(model["shapes"].items()):
        if is_enum(shape):
            yield name, shape


def annotation(model: Model, shape_name: str) -> str:
    shape = model["shapes"][shape_name]
    if is_document(shape):
        return "JsonValue"
    match shape["type"]:
        case "structure":
            return shape_name
        case "list":
            return f"tuple[{annotation(model, shape['member']['shape'])}, ...]"
        case "map":
            return f"dict[str, {annotation(model, shape['value']['shape'])}]"
        case scalar if scalar in SCALARS:
            return SCALARS[scalar]
        case unknown:
            raise ValueError(f"cannot write shape {shape_name}: type {unknown} is new, teach generate_wire.py about it")


def field_line(model: Model, wire_name: str, shape_name: str) -> str:
    name = snake(wire_name)
    kind = annotation(model, shape_name)
    optional = kind if kind == "JsonValue" else f"{kind} | None"
    if camel(name) == wire_name:
        return f"    {name}: {optional} = None"
    return f'    {name}: {optional} = field(default=None, name="{wire_name}")'


def write_list(values: list[str]) -> str:
    """A tuple literal of strings, on one line."""
    inner = ", ".join(f'"{value}"' for value in values)
    return f"({inner},)" if len(values) == 1 else f"({inner})"


ECS_HEADER = '''\
# Generated by scripts/generate_wire.py from the ECS service model {version}. Do not edit.
"""The ECS API as its service model defines it: every structure, enum and operation.

For whoever speaks the API: the control plane decodes requests into these and answers with them, the agent the other way
round. A field is absent when it is None; sets of words stay plain ``str`` in fields, so a word that a newer service
adds is carried rather than refused, and the StrEnum of the same shape name holds the words known today. Limits are in
``constraints``, error codes in ``errors``. Values only: nothing here outlives the request it came with. What agents
speak is in ``ecs_agent``, and here as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

from sexton.wire.ecs_agent import OPERATIONS as _OF_AGENTS
{taken}from sexton.wire.scalars import Int32, Int64, JsonValue
'''

ECS_AGENT_HEADER = '''\
# Generated by scripts/generate_wire.py from the ECS service model {version}. Do not edit.
"""The part of the ECS API that agents speak: the operations they call while they run, and what those are made of.

The whole is in ``ecs``, which takes all this over: a shape is the same class in both. Whoever stays on a host for
months loads this part alone, since the whole takes two megabytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct, field

from sexton.wire.scalars import Int32, Int64

TARGET_PREFIX = "{prefix}"
'''

LOGS_HEADER = '''\
# Generated by scripts/generate_wire.py from the CloudWatch Logs service model {version}. Do not edit.
"""The operations of CloudWatch Logs that are served here, as their service model defines them.

For the control plane, which decodes requests into these and answers with them, for the agent, which sends what tasks
write, and for the command line, which reads it. ``REFUSED`` names the operations that there are beside. Limits are in
``logs_table``, error codes in ``errors``. Values only: nothing here outlives the request it came with.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct, field

from sexton.wire.scalars import Int32, Int64

TARGET_PREFIX = "{prefix}"
'''

OPERATION_CLASS = '''\
class Operation(NamedTuple):
    """One call of the API: what it takes, what it answers, and the error codes it may answer with."""

    name: str
    request: type[Struct]
    response: type[Struct] | None
    errors: tuple[str, ...]
'''


def render_shapes(model: Model, header: str, *, taken: Model | None = None, words: bool = True) -> str:
    """The module of a model. What of it is ``taken`` from another module is named instead of written; ``words`` are the
    enums, which no field needs."""
    metadata = model["metadata"]
    others = {name for name, _ in structures(taken)} if taken else set()
    shared = sorted({"Operation", "TARGET_PREFIX", *others}) if taken else []
    imports = "".join(f"from sexton.wire.ecs_agent import {name} as {name}\n" for name in shared)
    parts = [header.format(version=metadata["apiVersion"], prefix=metadata["targetPrefix"], taken=imports)]
    for name, shape in enums(model) if words else ():
        refuse_reserved(name)
        members = {enum_member(value): value for value in shape["enum"]}
        if len(members) != len(shape["enum"]):
            raise ValueError(f"cannot write enum {name}: two of its values make the same Python name")
        body = "\n".join(f'    {member} = "{value}"' for member, value in members.items())
        parts.append(f"class {name}(StrEnum):\n{body}\n")
    for name, shape in structures(model):
        refuse_reserved(name)
        if name in others:
            continue
        lines = [field_line(model, wire, member["shape"]) for wire, member in shape["members"].items()]
        body = "\n".join(lines) or "    pass"
        parts.append(
            f'class {name}(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, rename="camel"):\n{body}\n'
        )
    known = taken["operations"] if taken else {}
    if not taken:
        parts.append(OPERATION_CLASS)
    rows = [
        f'    "{name}": _OF_AGENTS["{name}"],\n' if name in known else operation_row(operation)
        for name, operation in sorted(model["operations"].items())
    ]
    parts.append("OPERATIONS: Mapping[str, Operation] = {\n" + "".join(rows) + "}\n")
    if "others" in model:
        names = "".join(f'        "{name}",\n' for name in model["others"])
        parts[-1] += f"\nREFUSED = frozenset(\n    {{\n{names}    }}\n)\n"
    return "\n\n".join(parts)


def refuse_reserved(name: str) -> None:
    if name in RESERVED or not name.isidentifier():
        raise ValueError(f"cannot write shape {name}: the generated module uses that name itself")


def operation_row(operation: Shape) -> str:
    name = operation["name"]
    output = operation.get("output")
    response = output["shape"] if output else "None"
    errors = write_list(sorted(error["shape"] for error in operation.get("errors", [])))
    head = f'    "{name}": Operation(\n        "{name}",\n        {operation["input"]["shape"]},\n        {response},\n'
    return f"{head}        {errors},\n    ),\n"


TABLE_HEADER = """\
# Generated by scripts/generate_wire.py from the {service} service model {version}. Do not edit.
\"\"\"What the {service} service model demands of requests: members that must be there, bounds, patterns and words.

Only structures that a request can contain and that have something to check, in name order; members in the order of the
model, which is the order in which violations are told. Read by ``constraints``, loaded by whoever checks requests.
\"\"\"

from __future__ import annotations

from collections.abc import Mapping

from sexton.wire.constraint_rules import {rules}

"""


def render_constraints(model: Model, service: str) -> str:
    checked = structures_to_check(model)
    rows = []
    for name in sorted(checked):
        shape = model["shapes"][name]
        members = [member_row(model, checked, shape, wire) for wire in shape["members"]]
        union = f", union={write_list(list(shape['members']))}" if shape.get("union") else ""
        body = "".join(f"            {row},\n" for row in members if row)
        inner = f"(\n{body}        )" if body else "()"
        rows.append(f'    "{name}": Structure(\n        {inner}{union}\n    ),\n')
    known = ("Entries", "Items", "Member", "Nested", "Number", "Structure", "Text")
    used = ", ".join(name for name in known if any(f"{name}(" in row for row in rows))
    header = TABLE_HEADER.format(version=model["metadata"]["apiVersion"], service=service, rules=used)
    return header + "CONSTRAINTS: Mapping[str, Structure] = {\n" + "".join(rows) + "}\n"


def structures_to_check(model: Model) -> set[str]:
    """Structures within requests that demand something, themselves or through what they contain."""
    reachable = request_structures(model)
    checked: set[str] = set()
    while True:
        # Grows until nothing is added: a structure counts once a member of it does, and shapes may refer in circles.
        found = {name for name in reachable if demands(model, checked, model["shapes"][name])}
        if found == checked:
            return checked
        checked = found


def request_structures(model: Model) -> set[str]:
    found: set[str] = set()
    queue = [operation["input"]["shape"] for operation in model["operations"].values()]
    while queue:
        name = queue.pop()
        if name in found:
            continue
        found.add(name)
        shape = model["shapes"][name]
        queue += [member["shape"] for member in shape.get("members", {}).values()]
        queue += [shape[part]["shape"] for part in ("member", "value") if part in shape]
    return {name for name in found if model["shapes"][name]["type"] == "structure"}


def demands(model: Model, checked: set[str], shape: Shape) -> bool:
    return bool(shape.get("union")) or any(member_row(model, checked, shape, wire) for wire in shape["members"])


def member_row(model: Model, checked: set[str], shape: Shape, wire: str) -> str:
    """The table's entry for one member, empty when nothing is demanded of it."""
    rule = rule_text(model, checked, shape["members"][wire]["shape"])
    required = wire in shape.get("required", ())
    if not rule and not required:
        return ""
    parts = [f'"{snake(wire)}"', f'"{wire}"']
    parts += ["required=True"] if required else []
    parts += [f"rule={rule}"] if rule else []
    return f"Member({', '.join(parts)})"


def rule_text(model: Model, checked: set[str], shape_name: str) -> str:
    shape = model["shapes"][shape_name]
    bounds = [f"{name}={shape[key]}" for key, name in (("min", "minimum"), ("max", "maximum")) if key in shape]
    match shape["type"]:
        case "structure":
            return f'Nested("{shape_name}")' if shape_name in checked else ""
        case "string":
            parts = [*bounds, *pattern_parts(shape)]
            parts += [f'choices="{shape_name}"'] if is_enum(shape) else []
            rule = call("Text", parts)
        case "list":
            item = rule_text(model, checked, shape["member"]["shape"])
            if item.startswith("Items"):
                raise ValueError(f"cannot write constraints of {shape_name}: lists of bounded lists are new")
            rule = call("Items", [*bounds, *([f"item={item}"] if item else [])])
        case "map":
            inner = {part: rule_text(model, checked, shape[part]["shape"]) for part in ("key", "value")}
            if any(text and not text.startswith("Text") for text in inner.values()):
                raise ValueError(f"cannot write constraints of {shape_name}: maps of anything but text are new")
            rule = call("Entries", [*bounds, *(f"{part}={text}" for part, text in inner.items() if text)])
        case _:
            rule = call("Number", bounds)
    if rule and shape.get("sensitive"):
        raise ValueError(f"cannot write constraints of {shape_name}: a violation would show a sensitive value")
    return rule


def call(name: str, parts: list[str]) -> str:
    return f"{name}({', '.join(parts)})" if parts else ""


def pattern_parts(shape: Shape) -> list[str]:
    """The pattern as the service writes it, and as Python understands it."""
    pattern = shape.get("pattern")
    if pattern is None:
        return []
    expression = pattern
    for unknown, known in PROPERTIES.items():
        expression = expression.replace(unknown, known)
    re.compile(expression)
    return [f"pattern={pattern!r}", f"expression={expression!r}"]


def render_all(model: Model, logs: Model) -> dict[Path, str]:
    """Every generated file and its text."""
    of_agents = part_of(model, OF_AGENTS)
    return {
        WIRE / "ecs_agent.py": render_shapes(of_agents, ECS_AGENT_HEADER, words=False),
        WIRE / "ecs.py": render_shapes(model, ECS_HEADER, taken=of_agents),
        WIRE / "constraints_table.py": render_constraints(model, "ECS"),
        WIRE / "logs.py": render_shapes(logs, LOGS_HEADER),
        WIRE / "logs_table.py": render_constraints(logs, "CloudWatch Logs"),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Write the wire modules from botocore's service models.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a committed file is stale")
    check: bool = parser.parse_args(arguments).check
    files = render_all(load_model(), load_logs_model())
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if check:
        for path in stale:
            print(f"{path.name} differs from the service model; run python scripts/generate_wire.py", file=sys.stderr)
        return 1 if stale else 0
    for path, text in files.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
