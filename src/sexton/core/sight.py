"""What is seen of a container and of the host beside what is known of the task: values that others make bodies of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Sight(NamedTuple):
    """What the engine shows of one container: of networks the name and two addresses, of mounts name, source, place."""

    image_id: str = ""
    labels: Mapping[str, str] = {}
    networks: tuple[tuple[str, str, str], ...] = ()
    mounts: tuple[tuple[str, str, str], ...] = ()


UNSEEN = Sight()


class Place(NamedTuple):
    """Where the host is."""

    cluster: str
    zone: str = ""
    zone_id: str = ""
    vpc: str = ""
    private_ipv4: str = ""
    public_ipv4: str = ""
