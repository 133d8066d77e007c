"""The long-running commands: ``sexton up``, ``sexton control``, ``sexton agent``, ``sexton care``.

Started through this small door so that none of the command line's libraries is ever loaded into a process that stays.
One process runs one role, or with ``up`` all of them; what was asked for is read by ``commandline``, and what is run
for it is decided here and nowhere else.

Exit codes: 0 after a signal, 1 for what a restart may mend, 2 for a wrong call, 5 when there is nothing to do here and
a restart is useless (every unit file that ships tells systemd so).
"""

from __future__ import annotations

import asyncio
import faulthandler
import ipaddress
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from sexton import __version__, log
from sexton.commandline import Command, read_command
from sexton.kit import collecting, leanhttp
from sexton.kit.supervise import Nursery
from sexton.logfile import Rollover
from sexton.sdnotify import Notifier
from sexton.settings import BadSetting, Settings
from sexton.settings.sources import reasons_of

logger = logging.getLogger(__name__)

EXIT_FAILED = 1
EXIT_USAGE = 2


def split_address(listen: str) -> tuple[str, int]:
    """Host and port of an address such as ``127.0.0.1:7070`` or ``[::1]:7070``."""
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isdecimal() and int(port) < 65536):
        raise BadSetting(f"cannot listen on '{listen}': give an address and a port, such as 127.0.0.1:7070", typed=True)
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address. A name that merely looks like one is none."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_listen(chosen: Settings) -> None:
    """BadSetting for an address that must not, or cannot, be served as it is asked for."""
    host, _ = split_address(chosen.listen)
    if bool(chosen.tls_cert) != bool(chosen.tls_key):
        raise BadSetting("cannot serve by TLS: --tls-cert and --tls-key belong together; give both", typed=True)
    if not is_loopback(host) and not chosen.tls_cert and not chosen.insecure_plaintext:
        raise BadSetting(
            f"cannot listen on {host}: without TLS the control plane serves loopback addresses only; give it "
            "--tls-cert and --tls-key, or put a TLS proxy in front of 127.0.0.1. --insecure-plaintext serves it all "
            "the same: whoever is on the way then reads everything that is sent, and may repeat it for 15 minutes",
            typed=True,
        )
    if host in ("0.0.0.0", "::") and not chosen.advertise:  # noqa: S104 - asked about, not bound
        raise BadSetting(
            f"cannot tell agents where to connect: {host} is every address of this host; say which one they reach "
            "it by, with --advertise https://NAME:PORT",
            typed=True,
        )


def check_roles(chosen: Settings) -> None:
    """BadSetting for a roles file that was asked for and is not there; at the usual place there need be none."""
    if chosen.roles != Settings().roles and not Path(chosen.roles).exists():
        raise BadSetting(f"cannot use the roles file {chosen.roles}: there is none; make it, or leave --roles out")


def care_options(chosen: Settings) -> dict[str, Any]:
    """The caretaker's settings, checked before anything starts; BadSetting for one that must not be guessed."""
    metrics = None
    if chosen.care_metrics:
        metrics = split_address(chosen.care_metrics)
        if not is_loopback(metrics[0]):
            raise BadSetting(
                f"cannot publish metrics on {metrics[0]}: loopback addresses only; use 127.0.0.1 and have a proxy or "
                "the host's own scraper read it there",
                typed=True,
            )
    if not Path(chosen.care_root).is_dir():
        raise BadSetting(f"cannot look at {chosen.care_root}: no such directory; name the host's root", typed=True)
    secret = b""
    if chosen.care_webhook_secret_file:
        from sexton.care.exports.webhook import read_secret

        try:
            secret = read_secret(Path(chosen.care_webhook_secret_file))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise BadSetting(
                f"cannot use SEXTON_CARE_WEBHOOK_SECRET_FILE {chosen.care_webhook_secret_file}: {reason}"
            ) from None
    return {
        "data_dir": Path(chosen.data_dir),
        "docker_host": chosen.docker_host,
        # Not resolved: /proc/<pid>/root is a link that must stay one.
        "root": Path(os.path.abspath(chosen.care_root)),
        "policy": Path(chosen.care_policy),
        "every": chosen.care_every,
        "metrics": metrics,
        "journal": chosen.care_journal,
        "webhook": chosen.care_webhook,
        "webhook_secret": secret,
    }


def main(role: str, arguments: list[str]) -> int:
    """Run until a signal or the end of all use; the exit code."""
    try:
        command = read_command(role, arguments)
        if role in ("up", "control"):
            check_listen(command.settings)
            check_roles(command.settings)
        if role in ("up", "care"):
            care_options(command.settings)
    except BadSetting as error:
        print(f"sexton: {error}", file=sys.stderr)  # noqa: T201 - there is no log yet
        return EXIT_USAGE if error.typed else EXIT_FAILED
    if command.errand:
        return _run_errand(command)
    leanhttp.load()
    try:
        _configure_log(command.settings)
    except OSError as error:
        print(f"sexton: cannot log to {command.settings.log_file}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return EXIT_USAGE
    for warning in command.warnings:
        logger.warning("setting is not usable", extra={"setting": warning.partition(" ")[0], "reason": warning})
    for name, reason in reasons_of(command.unknown):
        logger.warning("setting without effect here", extra={"setting": name, "reason": reason})
    # Where each thread stands, for whoever asks by SIGUSR1, and for the watchdog, which ends what is stuck by SIGABRT.
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    return asyncio.run(_live(command), debug=command.settings.debug_loop)


def _run_errand(command: Command) -> int:
    if command.role == "care":
        from sexton.care.policy import BadPolicy, describe, read_policy

        try:
            print(describe(read_policy(Path(command.settings.care_policy))))  # noqa: T201 - it is what was asked for
        except BadPolicy as error:
            print(f"sexton: {error}", file=sys.stderr)  # noqa: T201
            return EXIT_FAILED
        return 0
    from sexton.agent import check

    log.configure("crit")  # what is asked for is said once, by the answer
    for warning in command.warnings:
        print(f"warning: {warning}", file=sys.stderr)  # noqa: T201
    if command.errand == "healthcheck":
        return asyncio.run(check.healthcheck(command.settings))
    return asyncio.run(check.run(command.settings, os.environ))


def _configure_log(chosen: Settings) -> None:
    rollover = Rollover(chosen.log_rollover, int(chosen.log_max_mb * 1_000_000), chosen.log_max_rolls)
    log.configure(
        chosen.log_level, chosen.log_file, chosen.log_format, file_level=chosen.log_level_file, rollover=rollover
    )


def _takes_up_files(command: Command) -> bool:
    """Whether there is a file that may be changed under the process."""
    chosen = command.settings
    return bool(chosen.tls_cert) or (command.role in ("up", "control") and Path(chosen.roles).exists())


async def _live(command: Command) -> int:
    """Start the roles, wait for a reason to end, stop them in reverse order."""
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    def failed(name: str, error: BaseException) -> None:
        end(_code_of(error))

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, 0)
    roles = _Roles(command, failed)
    if _takes_up_files(command):  # otherwise a hang-up ends the process, as it does any other
        loop.add_signal_handler(signal.SIGHUP, roles.reload)
    nursery = Nursery("daemon", lambda name, error: end(EXIT_FAILED))

    async def start() -> None:
        try:
            await roles.start()
        except Exception as error:
            # The edge of the program: every failure to start becomes one line and an exit code.
            end(_code_of(error))
        else:
            notifier.ready()
            notifier.status("running")
            collecting.begin()
            await collecting.collect_sometimes()

    notifier = Notifier()
    nursery.start("alive", notifier.keep_alive())
    nursery.start("start", start())
    logger.info("starting", extra={"version": __version__, "role": command.role, "pid": os.getpid()})
    code = await ended
    notifier.stopping()
    logger.info("stopping", extra={"code": code})
    await nursery.close()
    await roles.stop()
    return code


def _code_of(error: BaseException) -> int:
    """Log why the process cannot go on, and with which code it ends."""
    from sexton.agent.standdown import EXIT_CODE, StandDown
    from sexton.control.app import CannotListen
    from sexton.control.identity import IdentityError
    from sexton.control.keys import KeysError
    from sexton.control.logs.shelf import ShelfError
    from sexton.control.presence import BeingLoaded
    from sexton.core.rolesfile import BadRoles
    from sexton.kit.certificate import CertificateError
    from sexton.store.contract import StoreError

    match error:
        case StandDown():
            logger.error("standing down", extra={"cause": error.cause, "cure": error.cure, "code": EXIT_CODE})
            return EXIT_CODE
        case (
            BadRoles()
            | BeingLoaded()
            | CannotListen()
            | CertificateError()
            | IdentityError()
            | KeysError()
            | ShelfError()
            | StoreError()
        ):
            logger.error("cannot start", extra={"reason": str(error)})
            return EXIT_FAILED
        case OSError(filename=name, strerror=str(reason)) if name is not None:
            logger.error("cannot start", extra={"reason": f"cannot use {name}: {reason}; choose another --data-dir"})
            return EXIT_FAILED
        case _:
            logger.error("failed", exc_info=error)
            return EXIT_FAILED


class _Roles:
    """The roles of this process. Imports happen here, so that a role that is not wanted costs nothing."""

    def __init__(self, command: Command, failed: Any) -> None:
        self._command = command
        self._failed = failed
        self._running: list[Any] = []

    async def start(self) -> None:
        chosen = self._command.settings
        credentials = None
        if self._command.role in ("up", "control"):
            from sexton.control.app import ControlPlane, TlsFiles
            from sexton.control.app import Options as ControlOptions
            from sexton.core.pace import ECS

            host, port = split_address(chosen.listen)
            pace = msgspec.structs.replace(ECS, settle=chosen.service_settle)
            options = ControlOptions(
                host,
                port,
                Path(chosen.data_dir),
                chosen.account,
                chosen.region,
                store=chosen.store,
                advertise=chosen.advertise,
                tls=TlsFiles(Path(chosen.tls_cert), Path(chosen.tls_key)) if chosen.tls_cert else None,
                identity=Path(chosen.identity_certificates) if chosen.identity_certificates else None,
                roles=Path(chosen.roles),
                log_bytes=chosen.logs_max << 20,
                log_endpoint=chosen.logs_endpoint,
                events_kept=chosen.events_kept,
                pace=pace,
                keep_stopped=chosen.keep_stopped,
            )
            control = ControlPlane(options, self._failed)
            self._running.append(control)
            await control.start()
            if self._command.role == "up":
                credentials = control.own_credentials
                # A certificate that nobody signed is trusted by the process that shows it.
                bundle = chosen.ca_bundle or chosen.tls_cert
                chosen = msgspec.structs.replace(chosen, backend=control.endpoint, ca_bundle=bundle)
        if self._command.role == "care" or (self._command.role == "up" and chosen.care):
            await self._start_care(chosen, alone=self._command.role == "care")
        if self._command.role in ("up", "agent"):
            from sexton.agent.app import Agent
            from sexton.agent.app import Options as AgentOptions

            agent = Agent(AgentOptions(chosen, os.environ, credentials, self._command.leave_nothing), self._failed)
            self._running.append(agent)
            await agent.start()
            logger.info("agent ready")

    async def _start_care(self, chosen: Settings, *, alone: bool) -> None:
        """Before the agent, which waits for its engine: the caretaker says why there is none. Beside other roles it
        must never be what ends them."""
        from sexton.care.app import Caretaker
        from sexton.care.app import Options as CareOptions
        from sexton.store.contract import StoreError

        def ended(name: str, error: BaseException) -> None:
            logger.error("the caretaker ended, the other roles go on", extra={"task_name": name})

        options = CareOptions(**care_options(chosen), alone=alone)
        caretaker = Caretaker(options, self._failed if alone else ended)
        try:
            await caretaker.start()
        except Exception as error:
            await caretaker.stop()
            if alone and isinstance(error, StoreError):
                from sexton.agent.standdown import StandDown

                raise StandDown(f"this caretaker cannot have its ledger: {error}", "Then start it again") from None
            if alone:
                raise
            # The edge of a role that others do not need.
            logger.error("the caretaker cannot start, the other roles go on", extra={"reason": str(error)})
        else:
            self._running.append(caretaker)
            logger.info("caretaker ready")

    def reload(self) -> None:
        """SIGHUP: look at what may have been renewed. A role that has nothing of the kind goes on."""
        for role in self._running:
            if hasattr(role, "reload"):
                role.reload()

    async def stop(self) -> None:
        for role in reversed(self._running):
            try:
                await role.stop()
            except Exception:
                # The edge of the program: a role that cannot stop in order must not keep the next from it.
                logger.exception("cannot stop in order", extra={"role": type(role).__name__})
