"""What is used of the HTTP library's server: its connections, requests and answers, and not its framework.

``aiohttp.web`` loads an application, a router, static files and websockets with it, two megabytes that a daemon which
only has a handler never uses. Whoever serves without them takes the same classes from here.
"""

from __future__ import annotations

from aiohttp.web_protocol import RequestHandler, RequestPayloadError
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response, StreamResponse
from aiohttp.web_server import Server

__all__ = ["BaseRequest", "RequestHandler", "RequestPayloadError", "Response", "Server", "StreamResponse"]
