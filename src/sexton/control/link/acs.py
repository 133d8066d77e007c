"""ACS: one websocket per agent, on which it is told what to run.

A connection starts with everything its instance should know, then a manifest so that the agent can name tasks that
should no longer be there, then each change as it becomes durable. Nothing is remembered between connections: records
in, payloads out, with the keys of tasks' roles (``taskkeys``). The newest connection of an instance is the one that
counts; an older one is closed, and so is that of an instance that is deregistered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any

import msgspec

from sexton.cloud.sigv4_verify import Verifier
from sexton.control import presence, tasknetwork
from sexton.control.context import Call, Context
from sexton.control.link.delivery import RESEND_AFTER, TASKS_PER_MESSAGE, Delivery
from sexton.control.link.handshake import Peer, Refused, admit, open_socket
from sexton.control.link.networknews import NetworkNews, Told
from sexton.control.link.socket import AgentSocket, Gone
from sexton.control.link.taskkeys import TaskKeys
from sexton.control.records import Entry, InstanceRecord, KeyRecord, TaskRecord
from sexton.core import names, render
from sexton.kit import web
from sexton.kit.supervise import Nursery
from sexton.store.contract import StoreError
from sexton.wire import acs, acs_task
from sexton.wire.errors import EcsError, WireError
from sexton.wire.network import CHANGES

log = logging.getLogger(__name__)

# Well below the minute after which agents give up on a silent connection.
HEARTBEAT_SECONDS = 25.0
# So many unanswered heartbeats mean that nobody is there.
MISSED_HEARTBEATS = 3
# Roles that keys are asked for at the same time, over all agents.
MOST_ASKINGS = 8


class Session:
    """One connection."""

    def __init__(self, peer: Peer, socket: AgentSocket) -> None:
        self.peer = peer
        self.delivery = Delivery()
        self.changed = asyncio.Event()
        self.missed = 0
        self._socket = socket
        self.frames = socket.frames
        self.close = socket.close
        self.keys: TaskKeys | None = None
        self.told = Told(changes=peer.networks >= CHANGES)

    async def say(self, message: msgspec.Struct) -> None:
        await self._socket.say(acs.encode(message))


class AcsLink:
    """Every connected agent."""

    def __init__(self, context: Context, verifier: Verifier) -> None:
        self._context = context
        self._verifier = verifier
        self._sessions: dict[str, Session] = {}
        self._closings = Nursery("acs-closings")
        self.networks = NetworkNews(context)
        self._askings = asyncio.Semaphore(MOST_ASKINGS)
        context.records.tasks.listen(self._on_task)
        context.records.instances.listen(self._on_instance)
        context.records.keys.listen(self._on_key)

    def _on_instance(
        self, _key: str, before: Entry[InstanceRecord] | None, after: Entry[InstanceRecord] | None
    ) -> None:
        """A deregistered instance has nothing to say or hear any more, its agent learns why when it calls again; and
        an agent that is connected to another control plane by now is not coming back to this connection."""
        session = self._sessions.get(before.value.arn) if before else None
        if session is None or before is None:
            return
        if after is None:
            self._closings.start("deregistered", session.close("the container instance is inactive"))
        elif before.value.replica == self._context.replica and after.value.replica not in ("", before.value.replica):
            self._closings.start("elsewhere", session.close("a newer connection took over"))

    def _on_key(self, access_key: str, _before: object, after: Entry[KeyRecord] | None) -> None:
        """A key that is not accepted any more opens no connection, and keeps none open either."""
        if after is not None and not after.value.disabled:
            return
        for session in list(self._sessions.values()):
            if session.peer.call.access_key == access_key:
                self._closings.start("key", session.close("its key is not accepted any more"))

    def show_all(self) -> None:
        """Write anew whose agents are here: nothing that was written before counts any more."""
        for session in list(self._sessions.values()):
            peer = session.peer
            self._closings.start("presence", self._show_again(peer.call.region, peer.cluster, peer.instance_arn))

    async def _show_again(self, region: str, cluster: str, arn: str) -> None:
        try:
            await self._show_presence(region, cluster, arn)
        except (StoreError, EcsError) as error:
            log.warning("presence not written", extra={"instance": arn, "reason": str(error)})

    def send_away(self) -> None:
        """Have every agent connect anew: another control plane can do more for it."""
        for session in list(self._sessions.values()):
            self._closings.start("away", session.close("this control plane has lost its store"))

    def _on_task(self, _key: str, before: Entry[TaskRecord] | None, after: Entry[TaskRecord] | None) -> None:
        entry = after or before
        session = self._sessions.get(entry.value.task.container_instance_arn or "") if entry else None
        if session is None or entry is None:
            return
        if after is None or after.value.stopped:
            session.delivery.forget(entry.value.arn)
        elif before is not None and session.keys is not None:
            same = before.value.task.desired_status == after.value.task.desired_status
            if same and not session.keys.concern(entry.value.arn):
                return  # what an agent reported itself is no news to it
        session.changed.set()

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """The handler of the ACS path."""
        try:
            peer = await admit(self._context, self._verifier, request, "clusterArn", "containerInstanceArn")
            socket = await open_socket(request)
        except Refused as refusal:
            log.log(refusal.level, "agent refused", extra={"channel": "acs", "reason": str(refusal)})
            return refusal.response
        session = Session(peer, socket)
        older = self._sessions.get(peer.instance_arn)
        self._sessions[peer.instance_arn] = session
        log.info("agent connected", extra={"instance": peer.instance_arn})
        # A failure of one half ends the connection, so that the agent comes again and begins anew.
        nursery = Nursery(f"acs-{peer.instance_id}", lambda *_: socket.abort())
        session.keys = TaskKeys(self._context, nursery, session.changed.set, self._askings)
        try:
            if older is not None:
                nursery.start("older", older.close("a newer connection took over"))
            await self._show_presence(peer.call.region, peer.cluster, peer.instance_arn)
            nursery.start("deliver", self._deliver(session))
            nursery.start("heartbeat", self._heartbeat(session))
            await self._listen(session)
        except Gone:
            pass  # as good an end as any
        finally:
            await nursery.close()
            if self._sessions.get(peer.instance_arn) is session:
                del self._sessions[peer.instance_arn]
                self.networks.leave(peer.instance_arn)
                log.info(
                    "agent disconnected", extra={"instance": peer.instance_arn, "code": socket.response.close_code}
                )
                await self._show_again(peer.call.region, peer.cluster, peer.instance_arn)
        return socket.response

    async def close(self) -> None:
        """Tell every agent to come back later."""
        sessions = list(self._sessions.values())
        self._sessions.clear()  # what follows is no disconnection worth a record: the process is leaving
        await asyncio.gather(*(one.close("control plane is stopping") for one in sessions), return_exceptions=True)
        await self._closings.close()

    async def _show_presence(self, region: str, cluster: str, arn: str) -> None:
        """Bring an instance's record in line with whether its agent is here, however often that changes meanwhile.

        Whoever writes looks again afterwards: a connection that came while an end was being written is not lost.
        """
        call = Call(region, "", time.time())
        while True:
            session = self._sessions.get(arn)
            here = session is not None
            versions = session.peer.versions if session is not None else None
            entry = await presence.show(self._context, call, cluster, arn, here=here, versions=versions)
            if entry is None or here == (arn in self._sessions):
                return

    def _live(self, session: Session) -> list[TaskRecord]:
        here = self._context.records.tasks.group(session.peer.instance_arn)
        return [entry.value for entry in here if not entry.value.stopped]

    async def _deliver(self, session: Session) -> None:
        with contextlib.suppress(Gone):  # the listening half ends by itself
            await self._send_all(session)

    async def _send_all(self, session: Session) -> None:
        first = True
        keys = session.keys
        assert keys is not None
        while True:
            session.changed.clear()
            live = self._live(session)
            keys.attend(live)
            wishes = [(one.arn, one.task.desired_status or "RUNNING") for one in live]
            due = session.delivery.due([one for one in wishes if not keys.holds_back(one[0])], time.monotonic())
            later = await self._send_networks(session, urgent=bool(due))
            if due:
                await self._send_tasks(session, due)
                if len(due) == TASKS_PER_MESSAGE:
                    continue  # there may be more
            await self._send_keys(session, keys)
            if first:
                first = False
                if session.peer.full_sync:
                    await self._send_manifest(session, wishes)
            unanswered = session.delivery.waiting() or session.told.unanswered()
            waits = [one for one in (RESEND_AFTER if unanswered else None, keys.wait(), later) if one]
            try:
                async with asyncio.timeout(min(waits, default=None)):
                    await session.changed.wait()
            except TimeoutError:
                pass  # something may be due again

    async def _send_networks(self, session: Session, *, urgent: bool) -> float | None:
        """Tell the agent of its networks if it does not know them as they are: before the payloads that need them
        (``urgent``), else when its turn has come; the seconds until then, if it has to wait."""
        if not session.peer.networks:
            return None
        instance, now = session.peer.instance_arn, time.monotonic()
        mark = self.networks.mark(instance, session.changed.set)
        if not session.told.due(mark, now):
            return None
        wait = session.told.wait(self.networks, now)
        if wait and not urgent:
            return wait
        message_id, base = self._context.new_id(), session.told.base(now)
        change = self.networks.change(instance, base[1], mark) if base else None
        session.told.tell(mark, message_id, now)
        message = msgspec.structs.replace(
            change or self.networks.state(instance),
            since=base[0] if base and change else "",
            message_id=message_id,
            cluster_arn=self._cluster_arn(session),
            container_instance_arn=instance,
            revision=self._context.records.revision,
        )
        await session.say(message)
        return None

    async def _send_tasks(self, session: Session, arns: list[str]) -> None:
        payloads = []
        sequence = 0
        message_id = self._context.new_id()
        assert session.keys is not None
        for arn in arns:
            member = names.parse_task(arn)
            entry = member and self._context.records.tasks.get(session.peer.call.region, member.cluster, member.id)
            if entry:
                payloads.append(session.keys.onto(self._payload(entry.value), message_id))
                sequence = max(sequence, entry.revision)
        session.delivery.sent(
            [(one.arn or "", one.desired_status or "") for one in payloads], message_id, time.monotonic()
        )
        message = acs.PayloadMessage(
            cluster_arn=self._cluster_arn(session),
            container_instance_arn=session.peer.instance_arn,
            message_id=message_id,
            generated_at=int(time.time() * 1000),
            # Even numbers: a manifest written after these tasks must have a larger one.
            seq_num=2 * sequence,
            tasks=tuple(payloads),
        )
        await session.say(message)

    async def _send_keys(self, session: Session, keys: TaskKeys) -> None:
        for message_id, due in list(keys.due(self._context.new_id)):
            message = acs.IAMRoleCredentialsMessage(
                message_id=message_id,
                task_arn=due.task,
                task_cluster_arn=self._cluster_arn(session),
                role_type=due.role.kind,
                role_credentials=due.keys,
            )
            await session.say(message)

    def _payload(self, record: TaskRecord) -> acs_task.Task:
        definition = self._context.records.definition_of(record)
        if definition is None:
            # Definitions are never removed while tasks use them; an agent can still be told to stop the task.
            return acs_task.Task(arn=record.arn, task_cluster_arn=record.task.cluster_arn, desired_status="STOPPED")
        interfaces = tasknetwork.in_payload(self._context, record)
        return render.payload(
            record.task, definition.definition, record.account, interfaces, log_endpoint=self._context.log_endpoint
        )

    async def _send_manifest(self, session: Session, wishes: list[tuple[str, str]]) -> None:
        tasks = tuple(
            acs.TaskIdentifier(task_arn=arn, task_cluster_arn=self._cluster_arn(session), desired_status="RUNNING")
            for arn, wish in wishes
            if wish != "STOPPED"
        )
        manifest = acs.TaskManifestMessage(
            cluster_arn=self._cluster_arn(session),
            container_instance_arn=session.peer.instance_arn,
            message_id=self._context.new_id(),
            generated_at=int(time.time() * 1000),
            timeline=2 * self._context.records.revision + 1,
            tasks=tasks,
        )
        await session.say(manifest)

    def _cluster_arn(self, session: Session) -> str:
        return names.cluster_arn(self._context.place(session.peer.call), session.peer.cluster)

    async def _heartbeat(self, session: Session) -> None:
        with contextlib.suppress(Gone):
            while session.missed < MISSED_HEARTBEATS:
                await session.say(acs.HeartbeatMessage(healthy=True, message_id=self._context.new_id()))
                session.missed += 1
                await asyncio.sleep(HEARTBEAT_SECONDS)
            await session.close("no heartbeat")

    async def _listen(self, session: Session) -> None:
        async for frame in session.frames():
            try:
                message = acs.decode(frame)
            except WireError as error:
                log.warning("frame not understood", extra={"instance": session.peer.instance_arn, "reason": str(error)})
                continue
            await self._take(session, message.body)

    async def _take(self, session: Session, body: Any) -> None:
        match body:
            case acs.HeartbeatAckRequest():
                session.missed = 0
            case acs.AckRequest(message_id=str(message_id)):
                session.delivery.acknowledge(message_id)
                if session.told.acknowledge(message_id):
                    session.changed.set()
            case acs.IAMRoleCredentialsAckRequest(message_id=str(message_id), credentials_id=credentials_id):
                if session.keys is not None:
                    session.keys.acknowledge(message_id, credentials_id)
            case acs.NackRequest(message_id=message_id, reason=reason):
                session.told.refuse(message_id or "")
                session.changed.set()
                log.warning("agent refused a message", extra={"instance": session.peer.instance_arn, "reason": reason})
            case acs.TaskStopVerificationMessage(message_id=message_id, stop_candidates=candidates):
                confirmed = tuple(one for one in candidates or () if self._may_stop(session, one.task_arn))
                log.info(
                    "agent asked which tasks to stop",
                    extra={
                        "instance": session.peer.instance_arn,
                        "asked": len(candidates or ()),
                        "stop": len(confirmed),
                    },
                )
                answer = acs.TaskStopVerificationAck(
                    message_id=message_id, generated_at=int(time.time() * 1000), stop_tasks=confirmed
                )
                await session.say(answer)
            case _:
                pass  # whatever newer agents say needs no answer

    def _may_stop(self, session: Session, arn: str | None) -> bool:
        """Whether the agent is right that a task should not be there."""
        member = names.parse_task(arn or "")
        entry = member and self._context.records.tasks.get(session.peer.call.region, member.cluster, member.id)
        if not entry:
            return True
        task = entry.value.task
        return task.desired_status == "STOPPED" or task.container_instance_arn != session.peer.instance_arn
