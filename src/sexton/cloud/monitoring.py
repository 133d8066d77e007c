"""CloudWatch, as far as metrics of ours go: PutMetricData, in as few calls as the service's limits allow.

In AWS's query protocol, which AWS and everything that stands in for it has always understood. A call that was refused
for now, or never left this host, may be made again; one whose answer is lost may not, since a value that arrives twice
counts twice. ``Lost`` tells the two apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from urllib.parse import quote_plus

import aiohttp

from sexton.cloud.credentials import Credentials
from sexton.cloud.exchange import Unreachable
from sexton.cloud.query import QueryApi
from sexton.core.insights import Datum

# The service takes a thousand metrics and a megabyte in one call; this stays clear of both.
MOST_METRICS = 1000
MOST_BYTES = 900_000


class Lost(Exception):  # noqa: N818 - says what became of the call
    """The call was made and nobody knows whether it took effect."""


class Monitoring(QueryApi):
    """CloudWatch in one region."""

    NAME, PLACE, VERSION = "monitoring", "CLOUDWATCH", "2010-08-01"

    async def put(self, namespace: str, at: float, data: Sequence[Datum], keys: Credentials) -> None:
        """One call with one batch, as ``batches`` makes them."""
        stamp = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        form = {"Namespace": namespace}
        for number, one in enumerate(data, start=1):
            form |= _fields(number, one, stamp)
        try:
            await self._call("PutMetricData", form, keys)
        except Unreachable as error:
            if isinstance(error.__cause__, aiohttp.ClientConnectorError):
                raise
            raise Lost(str(error)) from None


def batches(data: Iterable[Datum]) -> Iterator[list[Datum]]:
    """In order, each as large as one call may be."""
    batch: list[Datum] = []
    size = 0
    for one in data:
        bytes_ = sum(
            len(key) + len(quote_plus(value)) + 2 for key, value in _fields(MOST_METRICS, one, " " * 30).items()
        )
        if batch and (len(batch) >= MOST_METRICS or size + bytes_ > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += bytes_
    if batch:
        yield batch


def _fields(number: int, one: Datum, stamp: str) -> dict[str, str]:
    head = f"MetricData.member.{number}"
    form = {f"{head}.MetricName": one.name, f"{head}.Unit": one.unit, f"{head}.Timestamp": stamp}
    for index, (name, value) in enumerate(one.dimensions, start=1):
        form[f"{head}.Dimensions.member.{index}.Name"] = name
        form[f"{head}.Dimensions.member.{index}.Value"] = value
    for index, (amount, count) in enumerate(one.values, start=1):
        form[f"{head}.Values.member.{index}"] = f"{amount:.3f}".rstrip("0").rstrip(".")
        form[f"{head}.Counts.member.{index}"] = str(count)
    return form
