"""STS, as far as roles need it: AssumeRole, and GetCallerIdentity to see that keys work.

Forms go out and XML comes back; of the XML a few elements are taken, which hold plain text. One call is one signed
POST without retries. Fails with ``EcsError`` (STS's own code and words), or ``Unreachable``. Keys that
come back are handed on and kept nowhere.
"""

from __future__ import annotations

from datetime import datetime

from sexton.cloud.credentials import Credentials
from sexton.cloud.exchange import Unreachable
from sexton.cloud.query import QueryApi, element


class Sts(QueryApi):
    """STS in one region."""

    NAME, PLACE, VERSION = "sts", "STS", "2011-06-15"

    async def assume_role(
        self, role_arn: str, name: str, seconds: float, keys: Credentials, external_id: str = ""
    ) -> Credentials:
        """Keys of a role, taken on under a name."""
        form = {"RoleArn": role_arn, "RoleSessionName": name, "DurationSeconds": str(int(seconds))}
        if external_id:
            form["ExternalId"] = external_id
        text = await self._call("AssumeRole", form, keys)
        found = {one: element(text, one) for one in ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")}
        try:
            ends = datetime.fromisoformat(found["Expiration"]).timestamp()
        except ValueError:
            ends = 0.0
        if not ends or not all(found.values()):  # what it said is not repeated: it may hold a secret
            raise Unreachable("cannot read the answer of STS to AssumeRole: it lacks keys. Check what listens there")
        return Credentials(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"], ends)

    async def caller(self, credentials: Credentials) -> str:
        """Whose keys these are, as an ARN."""
        return element(await self._call("GetCallerIdentity", {}, credentials), "Arn")
