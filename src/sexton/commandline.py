"""The command line of the long-running roles: which options each has, and what was asked for with them.

Read here and not by the other commands' library, so that none of it is ever loaded into a process that stays. Plain
calls are read by a few lines; help, and whatever is not plain, by the standard library's parser, which knows how to say
what is wrong and is loaded only then.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from sexton import settings
from sexton.kit import leanhttp
from sexton.settings import Settings
from sexton.settings.sources import of_user_data

if TYPE_CHECKING:
    import argparse

ROLES = {
    "up": "run the control plane, an agent for this host and its caretaker in one process",
    "control": "run the control plane alone",
    "agent": "run the agent of this host alone",
    "care": "run the caretaker of this host alone",
}
_EPILOG = "Settings can also come from the environment; 'sexton config explain' lists them all."
_EPILOG_CONTROL = (
    " Backup and restore: 'sexton control export FILE' and 'sexton control import FILE' save and load all records."
)


class Option(NamedTuple):
    """``field`` is the setting it overrides, empty when that is named like it. One without a value stands for
    ``const``; ``asks`` marks those that are no settings."""

    name: str
    help: str
    metavar: str = ""
    field: str = ""
    choices: tuple[str, ...] = ()
    const: str = ""
    asks: bool = False

    @property
    def key(self) -> str:
        return self.field or self.name[2:].replace("-", "_")


_ALL = (
    Option("--data-dir", "everything that survives a restart [ECS_DATADIR]", "DIR"),
    Option("--region", "region of the default cluster and of the agent [AWS_DEFAULT_REGION]"),
    Option("--log-level", "least severe line to log [ECS_LOGLEVEL]", choices=tuple(settings.LEVELS)),
    Option("--log-file", "log there as well as to standard error [ECS_LOGFILE]", "FILE"),
    Option("--log-format", "[ECS_LOG_OUTPUT_FORMAT]", choices=("logfmt", "json")),
)
_SERVES = (
    Option("--listen", "address of the API, 127.0.0.1:7070 [SEXTON_LISTEN]", "HOST:PORT"),
    Option("--account", "account id in ARNs, twelve digits [SEXTON_ACCOUNT_ID]", "ID"),
    Option("--store", "store of the records, as etcd://host:2379 [SEXTON_STORE]", "URL"),
    Option("--roles", "where tasks' roles get keys from [SEXTON_ROLES]", "FILE"),
    Option("--advertise", "where others reach this one [SEXTON_ADVERTISE]", "URL"),
    Option("--tls-cert", "serve by TLS with this certificate [SEXTON_TLS_CERT]", "FILE"),
    Option("--tls-key", "the certificate's key [SEXTON_TLS_KEY]", "FILE"),
    Option("--insecure-plaintext", "serve other machines without TLS [SEXTON_INSECURE_PLAINTEXT]", const="true"),
)
_ENGINE = (Option("--docker-host", "address of the container engine [DOCKER_HOST]", "URL"),)
_TENDS = (
    Option("--policy", "what the caretaker may do, /etc/sexton/care.toml [SEXTON_CARE_POLICY]", "FILE", "care_policy"),
    Option("--metrics", "address of the caretaker's metrics [SEXTON_CARE_METRICS]", "HOST:PORT", "care_metrics"),
)
_CARE = (
    Option("--root", "the host's root directory [SEXTON_CARE_ROOT]", "DIR", "care_root"),
    Option("--check", "read the policy, say what it allows, change nothing", const="true", asks=True),
)
_JOINS = (
    Option("--cluster", "cluster to join [ECS_CLUSTER]", "NAME"),
    Option("--leave-nothing", "on exit stop every task and remove what it left", const="true", asks=True),
)
_AGENT = (
    Option("--check", "say whether this host would join, and change nothing", const="true", asks=True),
    Option("--healthcheck", "say whether an agent answers on this host", const="true", asks=True),
    Option("--backend", "the ECS API to join [ECS_BACKEND_HOST]", "URL"),
)
_OF_ROLE = {
    "up": (*_ALL, *_SERVES, *_ENGINE, *_TENDS, *_JOINS),
    "control": (*_ALL, *_SERVES),
    "agent": (*_ALL, *_ENGINE, *_JOINS, *_AGENT),
    "care": (*_ALL, *_ENGINE, *_TENDS, *_CARE),
}


class Command(NamedTuple):
    """What the command line asked for."""

    role: str
    settings: Settings
    warnings: tuple[str, ...]
    unknown: tuple[str, ...]
    leave_nothing: bool
    errand: str = ""  # a question that is answered at once


def options(role: str) -> dict[str, str]:
    """The long options of a role and what each means, for whoever completes a command line."""
    return {"--help": "show this help message and exit", **{one.name: one.help for one in _OF_ROLE[role]}}


def read_command(role: str, arguments: list[str]) -> Command:
    """Settings from the command line, the environment and the config files; BadSetting for a wrong one. Ends the
    process for help, and for what it does not understand."""
    given = _plain(role, arguments)
    if given is None:
        given = {key: value for key, value in vars(_parser(role).parse_args(arguments)).items() if value}
    asked = {one.key for one in _OF_ROLE[role] if one.asks and one.key in given}
    # Every other option is named after the setting it overrides.
    overrides = {field: value for field, value in given.items() if field not in asked}
    errand = next((name for name in ("check", "healthcheck") if name in asked), "")
    environment = dict(os.environ)
    if role == "up" and not environment.get("ECS_IMAGE_PULL_BEHAVIOR"):
        # Images made on this machine are what people try first; asking a registry for them would be slow and wrong.
        overrides["pull_behavior"] = "prefer-cached"
    files = settings.CONFIG_FILES if role == "agent" else ()
    for name, value in settings.of_other_libraries(files).items():
        environment[name] = os.environ[name] = value
    loaded = settings.load(environment, files, overrides)
    if role == "agent" and not loaded.settings.external:
        loaded = _with_instance(loaded, environment, files, overrides)
    return Command(role, loaded.settings, loaded.warnings, loaded.unknown, "leave_nothing" in asked, errand)


def _plain(role: str, arguments: Sequence[str]) -> dict[str, str] | None:
    """Options written out, each with its value; None for anything else."""
    known = {one.name: one for one in _OF_ROLE[role]}
    given = {}
    rest = iter(arguments)
    for word in rest:
        name, equals, value = word.partition("=")
        one = known.get(name)
        if one is None or (one.const and equals):
            return None
        if one.const:
            value = one.const
        elif not equals:
            value = next(rest, "")
        if not value or (value.startswith("-") and not equals) or (one.choices and value not in one.choices):
            return None
        given[one.key] = value
    return given


def _parser(role: str) -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(
        prog=f"sexton {role}",
        description=ROLES[role][0].upper() + ROLES[role][1:] + ".",
        epilog=_EPILOG + (_EPILOG_CONTROL if role == "control" else ""),
    )
    for one in _OF_ROLE[role]:
        if one.const:
            parser.add_argument(one.name, dest=one.key, action="store_const", const=one.const, help=one.help)
        else:
            choices, metavar = one.choices or None, one.metavar or None
            parser.add_argument(one.name, dest=one.key, metavar=metavar, choices=choices, help=one.help)
    return parser


def _with_instance(
    loaded: settings.Loaded, environment: dict[str, str], files: tuple[Path, ...], overrides: dict[str, str]
) -> settings.Loaded:
    """What an EC2 instance says of itself stands below every other source."""
    leanhttp.load()
    from sexton.cloud.instance import is_instance

    if not is_instance(environment):
        return loaded
    region, user_data = asyncio.run(_ask_instance(environment))
    loaded = settings.load(environment, files, overrides, of_user_data(user_data))
    if region and "region" not in loaded.origins:
        chosen = msgspec.structs.replace(loaded.settings, region=region)
        loaded = loaded._replace(settings=chosen, origins={**loaded.origins, "region": "instance metadata"})
    return loaded


async def _ask_instance(environment: dict[str, str]) -> tuple[str, str]:
    import aiohttp

    from sexton.cloud.exchange import Unreachable
    from sexton.cloud.instance import InstanceService

    async with aiohttp.ClientSession() as http:
        service = InstanceService(environment, http)
        try:
            return (await service.identity()).region, await service.user_data()
        except Unreachable:
            return "", ""  # whoever needs what it would have said will say so
