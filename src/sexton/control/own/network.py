"""The networks of a region's tasks as they should be in force: what ``sexton net`` asks the control plane for."""

from __future__ import annotations

from sexton.control import authority
from sexton.control.context import Context
from sexton.control.link.networknews import NetworkNews
from sexton.control.own.door import Asked, answer, nothing_here
from sexton.core.roles import Role
from sexton.kit import web
from sexton.wire.ownnetwork import HostNetworks


class NetworkPath:
    """``/sexton/network``."""

    def __init__(self, context: Context, news: NetworkNews) -> None:
        self._context = context
        self._news = news

    async def serve(self, asked: Asked) -> web.StreamResponse:
        if asked.http.method != "GET" or asked.parts:
            raise nothing_here()
        authority.require(self._context, asked.call, "sexton:DescribeNetwork", Role.READ)
        return answer(HostNetworks(state=self._news.whole(asked.call.region)))
