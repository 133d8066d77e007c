"""The caretaker as a daemon: the round, and everything it needs around it.

    due probes -> outcomes -> ledger (findings open, hold, close) -> policy -> remedies -> one sentence
       ^                         |                                                            |
       watchers tell meanwhile   +-> log, journal, webhook's outbox                 logged when it changes

A round looks with the probes whose time has come, one after another, and files what they and the watchers hold true.
How long a probe rests depends on what its look cost (``core/rounds.py``). One broken probe, exporter or remedy does not
end a round. What survives a restart is the ledger and the figures of growth; a remedy that a death interrupted is
finished at the next start. Nothing is polled whose cost grows with the mess.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from sexton.care.acting import Actor
from sexton.care.baselines import Baselines
from sexton.care.desk import Desk
from sexton.care.exports.journal import JournalExport
from sexton.care.ledger import Ledger, ledger_file, read_ledger
from sexton.care.look import PROBES, WATCHERS, Sight, take
from sexton.care.policy import BadPolicy, read_policy
from sexton.care.probe import CouldNotLook, Looked, NotPresent, Outcome, Probe, Scene, Watcher
from sexton.care.snapshot import Snapshot
from sexton.care.watching import start_watchers
from sexton.core import ledger as rules
from sexton.core.finding import Severity
from sexton.core.ledger import Entry, Eye, Look, Record
from sexton.core.policy import Policy
from sexton.core.rounds import rest, sentence
from sexton.host.offload import in_thread
from sexton.host.proc import Boot, boot
from sexton.kit.supervise import Nursery
from sexton.store.contract import Durability, Store, StoreError
from sexton.store.opening import open_store

log = logging.getLogger(__name__)

# Between two rounds at least, however much there is to tell; several watchers' news make one round.
CALM = 1.0
# Longest time without a round: mutes end, windows begin and the policy file is read again.
LONGEST = 60.0
# What must be done now and then: mutes that end, findings that are forgotten.
TIDY = 300.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the settings say. ``alone``: this process is nothing but the caretaker."""

    data_dir: Path
    docker_host: str
    root: Path = Path("/")
    policy: Path = Path("/etc/sexton/care.toml")
    every: float = 0.0
    metrics: tuple[str, int] | None = None
    journal: bool = True
    webhook: str = ""
    webhook_secret: bytes = b""
    alone: bool = True
    probes: tuple[Probe, ...] = PROBES
    watchers: tuple[Watcher, ...] = WATCHERS


class Caretaker:
    """One host's caretaker, from ``start`` to ``stop``."""

    def __init__(self, options: Options, failed: Callable[[str, BaseException], None]) -> None:
        self._options = options
        self._nursery = Nursery("care", failed)
        self._closing = contextlib.AsyncExitStack()
        self._boot = Boot()
        self._due: dict[str, float] = {}
        self._told: dict[str, tuple[Watcher, Outcome]] = {}
        self._news = asyncio.Event()
        self._sights: dict[str, Sight] = {}
        self._figures: dict[str, dict[str, int]] = {}
        self._said = ""
        self._tidied = 0.0
        self._policy_seen: tuple[int, int] | None = (-1, -1)
        self._round_cpu = 0.0
        self._rounds = 0

    async def start(self) -> None:
        """Open the ledger, finish what was interrupted, begin. OSError or StoreError when that cannot be."""
        options = self._options
        self._boot = await in_thread("boot", lambda: boot(options.root))
        folder = options.data_dir / "care"
        self._baselines = Baselines(folder / "baselines.json", self._boot)
        store: Store = await open_store(f"sqlite://{ledger_file(options.data_dir)}", durability=Durability.NORMAL)
        self._closing.push_async_callback(store.close)
        self._journal = JournalExport(options.root) if options.journal else None
        self._ledger: Ledger = await read_ledger(store, self._tell, outbox=bool(options.webhook))
        self._actor = Actor(
            self._ledger,
            Policy(),
            root=options.root,
            docker_host=options.docker_host,
            look_again=self._look_again,
        )
        self._read_policy()
        self.desk = Desk(self._ledger, self._actor, self.snapshot)
        await self._listen()
        if options.webhook:
            from sexton.care.exports.webhook import WebhookExport

            self._webhook = WebhookExport(
                options.webhook, options.webhook_secret, self._ledger.outbox, self._ledger.delivered
            )
            self._nursery.start("webhook", self._webhook.run())
        await self._ledger.tidy(self._names(), time.time())
        start_watchers(self._nursery, options.watchers, self._scene_of_watcher, self._heard)
        self._nursery.start("rounds", self._run())

    async def _listen(self) -> None:
        """The socket for the command line, and the port for metrics if there is one."""
        from sexton.care.localapi import LocalApi, MetricsApi
        from sexton.kit.listener import Listener

        options = self._options
        local = Listener(LocalApi(self.desk))
        await local.open_unix(options.data_dir / "care.sock")
        self._closing.push_async_callback(local.close)
        if options.metrics is not None:
            published = Listener(MetricsApi(self.desk))
            host, port = options.metrics
            try:
                await published.open(host, port)
            except OSError as error:
                # Metrics are for others; the caretaker's own work does not need them.
                log.error("cannot publish metrics", extra={"address": f"{host}:{port}", "reason": error.strerror})
            else:
                self._closing.push_async_callback(published.close)

    async def stop(self) -> None:
        await self._nursery.close()
        await self._closing.aclose()

    def _names(self) -> frozenset[str]:
        probes, watchers = self._options.probes, self._options.watchers
        return frozenset([one.name for one in probes] + [one.name for one in watchers])

    async def _run(self) -> None:
        try:
            for finished in await self._actor.finish(time.time()):
                log.warning("unfinished remedy", extra={"says": finished})
        except StoreError as error:
            log.error("an unfinished remedy cannot be finished", extra={"reason": str(error)})
        while True:
            began, cpu = time.monotonic(), cpu_seconds()
            self._news.clear()
            try:
                said = await self._round()
            except StoreError as error:
                # Nothing is done that cannot be written down; looking goes on.
                said = f"a round was cut short, the ledger cannot be written: {error}"
            self._rounds += 1
            self._round_cpu += cpu_seconds() - cpu
            if said != self._said:
                self._said = said
                log.info("round", extra={"says": said})
            soonest = min(self._due.values(), default=began + LONGEST)
            await asyncio.sleep(CALM)
            with contextlib.suppress(TimeoutError):
                pause = min(LONGEST, max(0.0, soonest - time.monotonic()))
                await asyncio.wait_for(self._news.wait(), pause)

    async def _round(self) -> str:
        """Look, file, act, and say what was found."""
        self._read_policy()
        for probe in self._options.probes:
            if time.monotonic() >= self._due.get(probe.name, 0.0):
                await self._look(probe)
        for watcher, outcome in list(self._told.values()):
            await self._file(watcher.name, outcome, sure=True)
        now = time.time()
        if not 0 <= now - self._tidied < TIDY:
            self._tidied = now
            await self._ledger.tidy(self._names(), now)
            await in_thread("baselines", lambda: self._baselines.save(self._uptime(), now))
        done = await self._actor.attend(now)
        trouble = [f"the ledger is not kept: {self._ledger.trouble}"] if self._ledger.trouble else []
        return sentence(self._ledger.records, self._ledger.eyes, [*done, *trouble], now)

    def _uptime(self) -> float:
        """Of the host, without reading a file each time."""
        if self._boot.uptime is None:
            return 0.0
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    async def _look(self, probe: Probe) -> Sight:
        cpu = cpu_seconds()
        sight = await take(probe, self._scene(probe.name))
        every = min(probe.every, self._options.every) if self._options.every else probe.every
        self._due[probe.name] = time.monotonic() + rest(every, cpu_seconds() - cpu, len(self._options.probes))
        self._sights[probe.name] = sight
        await self._file(probe.name, sight.outcome)
        return sight

    def _scene(self, name: str) -> Scene:
        uptime = None if self._boot.uptime is None else self._uptime()
        return Scene(
            root=self._options.root,
            docker_host=self._options.docker_host,
            now=time.time(),
            uptime=uptime,
            before=None if uptime is None else self._baselines.before(name, uptime),
            data_dir=self._options.data_dir,
        )

    def _scene_of_watcher(self, watcher: Watcher) -> Scene:
        return msgspec.structs.replace(self._scene(watcher.name), keep=self._options.data_dir / "care")

    def _heard(self, watcher: Watcher, outcome: Outcome) -> None:
        self._told[watcher.name] = (watcher, outcome)
        self._news.set()

    async def _file(self, name: str, outcome: Outcome, *, sure: bool = False) -> None:
        now = time.time()
        await self._ledger.file(look_of(name, outcome, sure=sure), now)
        await self._ledger.watch_eye(eye_of(name, outcome, now))
        if isinstance(outcome, Looked):
            self._figures[name] = dict(outcome.figures)
            if self._boot.uptime is not None:
                self._baselines.keep(name, self._uptime(), outcome.figures)

    async def _look_again(self, name: str) -> Look | None:
        """For a remedy's proof. A watcher tells by itself: there is nothing to ask."""
        probe = next((one for one in self._options.probes if one.name == name), None)
        if probe is None:
            return None
        sight = await take(probe, self._scene(name))
        return look_of(name, sight.outcome, sure=True)

    def _read_policy(self) -> None:
        """Read the policy file again when it has changed: one stat a round."""
        path = self._options.policy
        try:
            told = path.stat()
            seen: tuple[int, int] | None = (told.st_mtime_ns, told.st_ino)
        except OSError:
            seen = None
        if seen == self._policy_seen:
            return
        self._policy_seen = seen
        try:
            self._actor.policy = read_policy(path)
            log.info("policy", extra={"source": self._actor.policy.source})
        except BadPolicy as error:
            self._actor.policy = Policy(source=f"{path} cannot be used: nothing is changed")
            log.error("policy is not usable, nothing is changed", extra={"reason": str(error)})

    def _tell(self, record: Record, entry: Entry) -> None:
        """One entry of a finding's history, just written."""
        if not entry.told:
            return
        level = logging.ERROR if record.finding.severity is Severity.CRITICAL else logging.WARNING
        if entry.kind in (rules.Kind.RESOLVED, rules.Kind.BETTER, rules.Kind.DONE):
            level = logging.INFO
        log.log(
            level,
            "finding",
            extra={
                "event": entry.kind.value,
                "fingerprint": record.fingerprint,
                "severity": record.finding.severity.value,
                "culprit": record.finding.culprit,
                "says": entry.says,
            },
        )
        if self._journal is not None:
            self._journal.tell(record, entry)
        if self._options.webhook:
            self._webhook.wake()

    def snapshot(self) -> Snapshot:
        """What the last round knew, for metrics and for ``/health``."""
        memcg = self._figures.get("memcg", {})
        growth = None
        if self._boot.uptime is not None and "zombies" in memcg:
            before = self._baselines.before("memcg", self._uptime())
            if before is not None and before.seconds >= LONGEST and "zombies" in before.figures:
                growth = (memcg["zombies"] - before.figures["zombies"]) / before.seconds * 3600.0
        return Snapshot(
            now=time.time(),
            records=self._ledger.records,
            actions=self._ledger.actions,
            eyes=self._ledger.eyes,
            figures=self._figures,
            seconds={name: sight.seconds for name, sight in self._sights.items()},
            zombie_growth=growth,
            cpu_seconds=cpu_seconds() if self._options.alone else self._round_cpu,
            rounds=self._rounds,
            says=self._said,
            policy=self._actor.policy.source,
        )


def cpu_seconds() -> float:
    """Processor time of this process and of its children that ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def look_of(name: str, outcome: Outcome, *, sure: bool = False) -> Look:
    """A probe's outcome as the ledger takes it."""
    match outcome:
        case Looked(findings=findings):
            return Look(probe=name, sight=rules.Sight.LOOKED, findings=findings, sure=sure)
        case NotPresent(reason=reason):
            return Look(probe=name, sight=rules.Sight.NOT_PRESENT, reason=reason, sure=sure)
        case CouldNotLook(reason=reason):
            return Look(probe=name, sight=rules.Sight.BLIND, reason=reason, sure=sure)


def eye_of(name: str, outcome: Outcome, now: float) -> Eye:
    """Whether a probe can see."""
    match outcome:
        case Looked(says=says):
            return Eye(probe=name, sight=rules.Sight.LOOKED, says=says, since=now)
        case NotPresent(reason=reason):
            return Eye(probe=name, sight=rules.Sight.NOT_PRESENT, says=reason, since=now)
        case CouldNotLook(reason=reason, next_step=cure):
            return Eye(probe=name, sight=rules.Sight.BLIND, says=reason, since=now, next_step=cure)
