"""A process with the credentials endpoint of one agent and nothing else, for those who load it: prints its port.

    python credentials_server.py TASKS RATE BURST

Tasks have the ids ``id0`` and so on. It listens on loopback as if that were the engine's bridge, so that each address
of 127/8 is a task of its own.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile

from sexton.agent.metadata.audit import Audit
from sexton.agent.metadata.credentials import CredentialsPaths
from sexton.agent.metadata.routes import Caller, Routes
from sexton.agent.metadata.server import LIMITS, PATHS_AT_ONCE, TaskServer
from sexton.agent.rolekeys import RoleKeys, Sent
from sexton.agent.steps.context import Identity
from sexton.cloud.credentials import Keyring
from sexton.core.taskroles import TASK
from sexton.kit.allowance import Allowances
from sexton.kit.listener import Listener
from sexton.settings import Settings
from sexton.wire.acs_task import IAMRoleCredentials


async def main(tasks: int, rate: float, burst: float, directory: str) -> None:
    keys = RoleKeys(Keyring([]))
    for number in range(tasks):
        given = IAMRoleCredentials(
            credentials_id=f"id{number}",
            role_arn="arn:aws:iam::123456789012:role/app",
            access_key_id="ASIA" + "A" * 16,
            secret_access_key="s" * 40,
            session_token="t" * 400,
            expiration="2033-01-01T00:00:00Z",
        )
        keys.take(Sent(f"task{number}", TASK, given))

    async def is_of(caller: Caller, task: str) -> bool:
        return True

    paths = CredentialsPaths(keys, Audit(Settings(data_dir=directory), Identity("default", "instance")), is_of)
    routes = Routes()
    paths.add_to(routes)
    whole = Allowances(rate * PATHS_AT_ONCE, burst * PATHS_AT_ONCE)
    server = TaskServer(routes, Allowances(rate, burst), whole)
    server.on_limited = paths.limited
    listener = Listener(server.at("bridge0"), LIMITS)
    print(await listener.open("127.0.0.1", 0), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), place))
