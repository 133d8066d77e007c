"""Account settings of principals: chosen, shown, chosen no longer.

A principal is whoever signs requests (``user/ACCESS-KEY``), any other user or role that somebody names, or the
account's root. What root chose holds for everyone who chose nothing, and what nobody chose is the default of
``core.accountsettings``. ``effective`` is that rule, for whoever needs a setting's value.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sexton.control.context import Call, Context, Operation, invalid, page
from sexton.control.records import AccountSettingRecord
from sexton.core import accountsettings, names
from sexton.wire import ecs

# The API's own page of this listing.
MOST_PER_PAGE = 10
_WHO = re.compile(r"root|(?:user|role)/[\w+=,.@/-]{1,512}", re.ASCII)


class Effective(NamedTuple):
    """What a setting is for a principal, and whose choice that is."""

    value: str
    principal: str


def effective(context: Context, call: Call, name: str, principal: str = "") -> Effective:
    """What a setting is for a principal; for whoever makes the call when none is named."""
    root = _root(context, call)
    for who in (principal or _caller(context, call), root):
        entry = context.records.settings.get(call.region, name, who)
        if entry is not None:
            return Effective(entry.value.value, who)
    return Effective(accountsettings.SETTINGS[name].default, root)


def _root(context: Context, call: Call) -> str:
    return names.principal_arn(context.place(call), "root")


def _caller(context: Context, call: Call) -> str:
    return call.session.role_arn if call.session else context.principal(call)


def _principal(context: Context, call: Call, given: str | None) -> str:
    """Whom a request speaks of, or the API's error for an ARN that is no principal of this account."""
    if given is None:
        return _caller(context, call)
    account = names.principal_arn(context.place(call), "")
    if not given.startswith(account) or not _WHO.fullmatch(given.removeprefix(account)):
        raise invalid("The principal ARN is invalid. Specify the ARN of a user, a role or the root of this account.")
    return given


def _shown(name: str, value: str, principal: str) -> ecs.Setting:
    kind = accountsettings.SETTINGS[name].type
    return ecs.Setting(name=name, value=value, principal_arn=principal, type=str(kind))


async def _set(context: Context, call: Call, name: str, value: str, principal: str) -> ecs.Setting:
    problem = accountsettings.problem(name, value)
    if problem:
        raise invalid(problem)
    table, where = context.records.settings, (call.region, name, principal)
    record = AccountSettingRecord(principal=principal, name=name, value=value)
    before = table.get(*where)
    if before is None or before.value != record:
        # Nothing of what was there before goes into this, so the last word stands without a condition.
        await context.records.commit([], [context.records.put(table, record, *where)])
    return _shown(name, value, principal)


async def put(context: Context, call: Call, request: ecs.PutAccountSettingRequest) -> ecs.PutAccountSettingResponse:
    principal = _principal(context, call, request.principal_arn)
    setting = await _set(context, call, request.name or "", request.value or "", principal)
    return ecs.PutAccountSettingResponse(setting=setting)


async def put_default(
    context: Context, call: Call, request: ecs.PutAccountSettingDefaultRequest
) -> ecs.PutAccountSettingDefaultResponse:
    setting = await _set(context, call, request.name or "", request.value or "", _root(context, call))
    return ecs.PutAccountSettingDefaultResponse(setting=setting)


async def delete(
    context: Context, call: Call, request: ecs.DeleteAccountSettingRequest
) -> ecs.DeleteAccountSettingResponse:
    """The answer tells what holds for the principal from now on."""
    name = request.name or ""
    principal = _principal(context, call, request.principal_arn)
    table, where = context.records.settings, (call.region, name, principal)
    if table.get(*where) is not None:
        await context.records.commit([], [context.records.delete(table, *where)])
    value = effective(context, call, name, principal).value
    return ecs.DeleteAccountSettingResponse(setting=_shown(name, value, principal))


async def listing(
    context: Context, call: Call, request: ecs.ListAccountSettingsRequest
) -> ecs.ListAccountSettingsResponse:
    principal = _principal(context, call, request.principal_arn)
    if request.value is not None and request.name is None:
        raise invalid("A setting name must be specified to filter by value.")
    asked = sorted(accountsettings.SETTINGS) if request.name is None else [request.name]
    settings: dict[str, ecs.Setting] = {}
    for name in asked:
        value, chooser = effective(context, call, name, principal)
        chosen = context.records.settings.get(call.region, name, principal) is not None
        if (chosen or request.effective_settings) and request.value in (None, value):
            settings[name] = _shown(name, value, chooser)
    listed, token = page(list(settings), request.next_token, request.max_results, MOST_PER_PAGE)
    return ecs.ListAccountSettingsResponse(settings=tuple(settings[name] for name in listed), next_token=token)


OPERATIONS: dict[str, Operation] = {
    "PutAccountSetting": put,
    "PutAccountSettingDefault": put_default,
    "DeleteAccountSetting": delete,
    "ListAccountSettings": listing,
}
