"""The packet filter's rules for tasks' endpoint: whose they are, what they match, and nothing of anybody else."""

from __future__ import annotations

import pytest

from sexton.core import endpointrules
from sexton.core.endpointrules import Owner

ME = Owner(4711, 123456)


def test_rules_name_their_owner_and_match_nothing_but_the_endpoint():
    text = endpointrules.ruleset("sexton-tasks-0123456789ab", ME, {"docker0": 51679}, 40001)
    assert text.startswith("table ip sexton-tasks-0123456789ab\ndelete table ip sexton-tasks-0123456789ab\n")
    rules = [line for line in text.splitlines() if "redirect" in line]
    assert rules == [
        'iifname "docker0" ip daddr 169.254.170.2 tcp dport 80 redirect to :51679 comment "4711 123456"',
        'ip daddr 169.254.170.2 tcp dport 80 redirect to :40001 comment "4711 123456 host"',
    ]
    assert endpointrules.owners(text) == {ME} and endpointrules.serves_host(text)


def test_without_the_hosts_own_network_nothing_that_it_sends_is_touched():
    text = endpointrules.ruleset("sexton-tasks-0", ME, {"docker0": 1, "br1": 2})
    assert "hook output" not in text and not endpointrules.serves_host(text)
    assert text.count("redirect") == 2


def test_a_name_that_is_no_interface_never_reaches_the_packet_filter():
    for name in ("", 'x" accept #', "a b", "x" * 16, "x\ny", "x;y"):
        assert not endpointrules.is_interface(name)
        with pytest.raises(ValueError, match="cannot use"):
            endpointrules.ruleset("sexton-tasks-0", ME, {name: 1})


def test_each_data_directory_has_a_table_of_its_own():
    one, other = endpointrules.table_name("/var/lib/sexton"), endpointrules.table_name("/tmp/sexton")
    assert one != other and one == endpointrules.table_name("/var/lib/sexton")
    assert one.startswith("sexton-tasks-")


def test_rules_of_others_have_no_owner_of_ours():
    listing = 'table ip nat {\nchain x {\ntcp dport 80 accept comment "for 17 clients"\n}\n}'
    assert endpointrules.owners(listing) == frozenset() and not endpointrules.serves_host(listing)
