"""Rules and shapes are data: the shipped ones hold together, a user's own are taken, a wrong one is named."""

from __future__ import annotations

import pytest

from sexton.care.audit.auditing import audit
from sexton.care.audit.rulebook import SHIPPED, BadRules, open_rulebook
from sexton.core.audit import Verdict
from sexton.host.rootfs import Directory
from unitroot import ecs_root, make_root


@pytest.mark.parametrize("shape", SHIPPED)
def test_shipped_shapes_and_rules_hold_together(shape):
    book = open_rulebook(shape)

    assert book.shape.name == shape
    assert len({rule.name for rule in book.rules}) == len(book.rules)
    assert all(rule.what for rule in book.rules)


def test_a_users_shape_refuses_units_and_brings_its_own_rules(tmp_path):
    shape = tmp_path / "batch.toml"
    shape.write_text(
        'name = "batch"\nwhat = "a batch worker"\nexpects = ["docker.service"]\nrefuses = ["vendor-*.service"]\n'
        '[[facility]]\nname = "licence"\nwhat = "licence server"\n'
        '[[rule]]\nname = "cad"\nwhat = "CAD worker"\nunits = ["cad.service"]\nneeds = ["licence"]\n'
    )
    plain = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
    names = ("vendor-agent.service", "cad.service", "own.service")
    top = make_root(tmp_path / "root", dict.fromkeys(names, plain), enabled=names)
    seen = audit(Directory(top), open_rulebook(str(shape)))

    assert {one.name: one.assessment.reasons[0] for one in seen.to_change} == {
        "vendor-agent.service": "a batch worker must not run it",
        "cad.service": "cannot work here",
    }
    assert seen.unit("cad.service").assessment.reasons[1] == "lacks: no licence server on a batch worker"


def test_a_users_rule_stands_before_the_shipped_ones(tmp_path):
    rules = tmp_path / "own.toml"
    rules.write_text('[[rule]]\nname = "ours"\nwhat = "our fork, which works anywhere"\nunits = ["ecs.service"]\n')
    seen = audit(Directory(ecs_root(tmp_path / "root")), open_rulebook("plain", (rules,)))

    assert seen.unit("ecs.service").assessment.rule == "ours"
    assert seen.unit("ecs.service").assessment.verdict is Verdict.FIX  # it still loops and leaks


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[rule]]\nname = 'x'\n", "what"),
        ("[[rule]]\nname = 'x'\nwhat = 'y'\n", "names neither units nor runs"),
        ("[[rule]]\nname = 'x'\nwhat = 'y'\nunits = ['a']\nneeds = ['moon']\n", "needs 'moon'"),
        ("[[rule]]\nname = 'x'\nwhat = 'y'\nunits = ['a']\ncolour = 'red'\n", "colour"),
        ("= nonsense", "cannot use"),
    ],
)
def test_a_wrong_rule_is_refused_by_name(tmp_path, text, said):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(BadRules, match=said):
        open_rulebook("plain", (path,))


def test_an_unknown_shape_is_refused_with_those_there_are():
    with pytest.raises(BadRules, match="say ecs, kubernetes, ray, plain or the path"):
        open_rulebook("cube")
