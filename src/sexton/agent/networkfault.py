"""Why a task cannot have a network of its own, in the words that the control plane is told.

Apart from ``networks``, which only hosts that have such tasks load.
"""

from __future__ import annotations

FAILED = "ContainerNetworkingError: container resource provisioning: failed to setup network namespace: "


class NetworkFault(Exception):  # noqa: N818 - becomes the reason of a task
    """A task cannot have its network; the message begins with the error's name on the wire."""
