"""STS, as far as it says who is asking."""

from __future__ import annotations

from sexton.cloud.sigv4_verify import SignatureFault
from sexton.control.context import Call, Context
from sexton.control.query.service import Answer, Codes, Operation, Service, query_failure, wrapped
from sexton.wire.query import Request


class GetCallerIdentity(Request, frozen=True, kw_only=True):
    pass


async def caller(context: Context, call: Call, _request: GetCallerIdentity) -> Answer:
    """Whose key signed the request."""
    session = call.session
    user = session.user_id if session else call.access_key
    account = session.account if session else context.account
    return {"Arn": context.principal(call), "UserId": user, "Account": account}


STS = Service(
    name="sts",
    title="AWS Security Token Service",
    operations={"GetCallerIdentity": Operation(GetCallerIdentity, caller)},
    codes=Codes(
        denied="AccessDenied",
        signature={
            SignatureFault.MISSING: ("MissingAuthenticationToken", 403),
            SignatureFault.INCOMPLETE: ("IncompleteSignature", 400),
            SignatureFault.INVALID: ("SignatureDoesNotMatch", 403),
            SignatureFault.EXPIRED: ("ExpiredToken", 403),
            SignatureFault.UNRECOGNIZED: ("InvalidClientTokenId", 403),
        },
    ),
    success=wrapped("https://sts.amazonaws.com/doc/2011-06-15/"),
    failure=query_failure,
)
