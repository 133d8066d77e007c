"""Counters by rule and by interface, out of what nft prints."""

from __future__ import annotations

import json

from sexton.core.netcounters import dropped, read
from sexton.wire.ownnetwork import Count


def element(comment, packets, size):
    return {"elem": {"val": 80, "comment": comment, "counter": {"packets": packets, "bytes": size}}}


def test_pieces_of_a_rule_are_added_and_drops_told_apart():
    listing = {
        "nftables": [
            {"metainfo": {"version": "1.0.6"}},
            {"set": {"name": "sg-a.ingress4.6.0123", "elem": [element("sgr-1", 3, 180), element("sgr-2", 1, 60)]}},
            {"set": {"name": "sg-a.ingress6.6.0123", "elem": [element("sgr-1", 2, 160)]}},
            {"set": {"name": "refused-ingress4", "elem": [element("eni-1", 7, 420)]}},
            {"set": {"name": "refused-egress6", "elem": [element("eni-1", 4, 40)]}},
            {"set": {"name": "own-devices", "elem": [element("eni-1", 1, 1)]}},
            {"set": {"name": "own4", "elem": ["10.0.0.5"]}},
            {"rule": {"comment": "sgr-3", "expr": [{"counter": {"packets": 5, "bytes": 50}}, {"accept": None}]}},
        ]
    }

    assert read(json.dumps(listing).encode()) == {
        "sgr-1": Count(5, 340),
        "sgr-2": Count(1, 60),
        "sgr-3": Count(5, 50),
        dropped("eni-1", "ingress"): Count(7, 420),
        dropped("eni-1", "egress"): Count(4, 40),
        dropped("eni-1", "spoofed"): Count(1, 1),
    }
