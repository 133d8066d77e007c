"""The cluster query language: what the documentation shows works, and what is wrong is said where."""

from __future__ import annotations

import contextlib
import operator
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.core.query import Query, QueryError, Subject, read
from sexton.core.query_parser import MOST_CHARACTERS, parse
from sexton.core.query_tree import ALLOWED, And, Compare, Field, Not, Operator, Or, written

SUBJECT = Subject(
    connected=True,
    attributes=frozenset({"ecs.instance-type", "ecs.availability-zone", "stack", "gpu", "cores", "kernel"}),
    values={
        "ecs.instance-type": "g2.2xlarge",
        "ecs.availability-zone": "us-east-1a",
        "stack": "prod",
        "cores": "16",
        "kernel": "6.18.3",
    },
    groups={"service:production": 2, "database": 1},
    running=3,
    agent_version="1.14.4",
    ec2_instance_id="i-abcd1234",
    registered_at=1518393600.25,  # 2018-02-12T00:00:00Z and a bit
)
EMPTY = Subject(connected=False, attributes=frozenset())


@pytest.mark.parametrize(
    "expression, expected",
    [
        ("attribute:ecs.instance-type == t2.small", False),
        ("attribute:ecs.availability-zone in [us-east-1a, us-east-1b]", True),
        ("attribute:ecs.instance-type =~ g2.* and attribute:ecs.availability-zone != us-east-1d", True),
        ("task:group == service:production", True),
        ("not(task:group == database)", False),
        ("runningTasksCount == 3", True),
        ("agentVersion < 1.14.5", True),
        ("agentVersion < 1.9", False),
        ("registeredAt < 2018-02-13", True),
        ("registeredAt == 2018-02-12T01:00:00+01:00", True),
        ("registeredAt >= 2018-02-12T00:00:01Z", False),
        ("registeredAt != 2018-02-12T00:00:00", False),
        ("ec2InstanceId in ['i-abcd1234', \"i-wxyx7890\"]", True),
        ("agentConnected == true", True),
        ("agentConnected not_in [TRUE]", False),
        ("attribute:gpu exists", True),
        ("attribute:tpu !exists and attribute:tpu not_exists", True),
        ("attribute:gpu == ''", True),
        ("attribute:cores > 9", True),
        ("attribute:cores less_than_equal 16.0", True),
        ("attribute:kernel greater_than 6.9", True),
        ("attribute:stack > pre", True),
        ("attribute:stack equals prod && attribute:stack matches 'p(r|x)o.'", True),
        ("attribute:stack not_matches p || attribute:stack not_equals prod", True),
        ("(attribute:stack =~ (dev|prod)) and attribute:stack!=dev", True),
        ("attribute:stack =~ pro and agentConnected == true", False),
        ("(attribute:stack =~ [)a-z(]+\\w)&&attribute:stack=~p[|]?rod||attribute:tpu exists", True),
        ("attribute:stack == dev or attribute:stack == prod and runningTasksCount > 5", False),
        ("(attribute:stack == dev or attribute:stack == prod) and !(runningTasksCount > 5)", True),
        ("attribute:stack !in[dev,test]and not not agentConnected==true", True),
        ("attribute:stack in [and, in, 'prod']", True),
        ("task:group != frontend", True),
        ("task:group != database", False),
        ("task:group =~ service:.*", True),
        ("task:group in [frontend, database]", True),
    ],
)
def test_an_expression_selects_the_hosts_it_means(expression, expected):
    assert read(expression).matches(SUBJECT) is expected


@pytest.mark.parametrize(
    "expression, expected",
    [
        ("attribute:stack != prod", False),
        ("attribute:stack !in [prod]", False),
        ("attribute:stack !~ prod", False),
        ("attribute:cores < 5", False),
        ("ec2InstanceId != i-1", False),
        ("agentVersion != 1.0", False),
        ("registeredAt > 1990-01-01", False),
        ("not attribute:stack == prod", True),
        ("attribute:stack !exists", True),
        ("task:group != database", True),
        ("task:group !exists", True),
        ("agentConnected == False", True),
        ("runningTasksCount < 1", True),
    ],
)
def test_what_a_host_does_not_have_satisfies_no_comparison_but_is_found_by_its_absence(expression, expected):
    assert read(expression).matches(EMPTY) is expected


@pytest.mark.parametrize(
    "version, expected", [("v1.105.1", True), ("1.106.0-dev", True), ("dirty", False), ("", False)]
)
def test_an_agents_own_way_of_writing_its_version_is_read(version, expected):
    subject = Subject(connected=True, attributes=frozenset(), agent_version=version)

    assert read("agentVersion >= 1.105").matches(subject) is expected


@pytest.mark.parametrize(
    "expression, position, expected",
    [
        ("", 0, "a subject (attribute:NAME, agentConnected,"),
        ("instanceType == x", 0, "a subject"),
        ("attribute: == x", 10, "an attribute's name"),
        ("attribute:a(b) == x", 11, "an operator"),
        ("attribute:stack", 15, "an operator (== !="),
        ("attribute:stack = prod", 16, "an operator"),
        ("attribute:stack !like prod", 16, "an operator"),
        ("attribute:stack ==", 18, "a value"),
        ("attribute:stack == 'prod", 24, "a closing '"),
        ("attribute:stack == prod dev", 24, "'and', 'or' or the end"),
        ("attribute:stack in prod", 19, "'['"),
        ("attribute:stack in []", 20, "a value"),
        ("attribute:stack in [a b]", 22, "',' or ']'"),
        ("(attribute:stack == prod", 24, "'and', 'or' or ')'"),
        ("attribute:stack == prod)", 23, "'and', 'or' or the end"),
        ("agentVersion in [1.0]", 13, "an operator that agentVersion has (== != > >= < <=)"),
        ("agentVersion > new", 15, "a version number"),
        ("registeredAt > 2018-02-30", 15, "a date such as"),
        ("registeredAt > yesterday", 15, "a date such as"),
        ("runningTasksCount == -1", 21, "a whole number"),
        ("agentConnected in [true, maybe]", 25, "true or false"),
        ("attribute:a =~ (b", 17, "in the pattern: ')'"),
        ("attribute:a =~ 'b(?=c)'", 18, "in the pattern: a plain group"),
        ("attribute:a =~ b{300}", 15, "in the pattern: at most 256 positions"),
        ("attribute:a =~ x{200} and attribute:b =~ x{200}", 41, "patterns of at most 256 positions together"),
        ("!" * 60 + "agentConnected == true", 51, "at most 50"),
        ("agentConnected == true " + " " * MOST_CHARACTERS, MOST_CHARACTERS, f"at most {MOST_CHARACTERS} characters"),
    ],
)
def test_an_error_says_where_and_what_was_expected(expression, position, expected):
    with pytest.raises(QueryError) as error:
        parse(expression)

    assert (error.value.position, error.value.expected[: len(expected)]) == (position, expected)
    assert str(error.value).startswith(f"cannot read the expression at character {position + 1}: expected {expected}")


def test_an_error_shows_what_was_found_but_never_repeats_a_strangers_control_signs_or_all_of_it():
    with pytest.raises(QueryError, match=r"found 'y\?\[31m' \+.*\.\.\.$|found 'y\?\[31m.*'\.\.\.$"):
        parse("attribute:a == x y\x1b[31m" + "z" * 500)


def test_a_mismatch_names_the_first_part_that_fails_and_what_the_host_has_instead():
    query = read("attribute:ecs.instance-type =~ g2.* and (attribute:stack == dev and runningTasksCount < 2)")

    assert query.mismatch(SUBJECT) == "attribute:stack == dev (it is prod)"
    assert query.mismatch(EMPTY) == "attribute:ecs.instance-type =~ 'g2.*' (it has no attribute:ecs.instance-type)"
    assert read("agentConnected == true").mismatch(SUBJECT) == ""


def test_queries_that_read_the_same_are_one_and_know_whether_tasks_change_their_answer():
    assert read("attribute:a equals 'b'") == read("attribute:a==b")
    assert hash(read("attribute:a equals 'b'")) == hash(read("attribute:a==b"))
    assert not read("attribute:a == b").dynamic
    assert read("attribute:a == b or not (runningTasksCount > 2)").dynamic
    assert read("task:group exists").dynamic


texts = st.text(max_size=6) | st.sampled_from(["a", "ab", "b", "1", "1.2", "1.10", "x'y", 'x"y', "and", "in", ""])
names = st.sampled_from(["a", "b", "ecs.x", "c/d\\e-f_g"])
versions = st.sampled_from(["1", "1.2", "1.10", "1.2.0", "2.0.1"])
instants = st.sampled_from(["2018-06-18T22:28:28+00:00", "2018-06-18T22:28:28Z", "2018-06-18T22:28:28", "2018-06-18"])
patterns = st.sampled_from(["a", "a.*", "(a|b)+", "[a-c]{1,2}", ".*'.*", "\\d+", ""])


def comparisons(subject, allowed, values):
    def of(found):
        if found in (Operator.EXISTS, Operator.NOT_EXISTS):
            return st.just(Compare(subject, found))
        if found in (Operator.IN, Operator.NOT_IN):
            many = st.lists(values, min_size=1, max_size=3).map(tuple)
            return st.builds(Compare, st.just(subject), st.just(found), many)
        one = patterns if found in (Operator.MATCHES, Operator.NOT_MATCHES) else values
        return st.builds(Compare, st.just(subject), st.just(found), st.tuples(one))

    return st.sampled_from(sorted(allowed)).flatmap(of)


leaves = st.one_of(
    names.flatmap(lambda name: comparisons("attribute:" + name, Operator, texts)),
    comparisons(Field.TASK_GROUP.value, ALLOWED[Field.TASK_GROUP], texts),
    comparisons(Field.AGENT_CONNECTED.value, ALLOWED[Field.AGENT_CONNECTED], st.sampled_from(["true", "false"])),
    comparisons(Field.AGENT_VERSION.value, ALLOWED[Field.AGENT_VERSION], versions),
    comparisons(Field.EC2_INSTANCE_ID.value, ALLOWED[Field.EC2_INSTANCE_ID], texts),
    comparisons(Field.REGISTERED_AT.value, ALLOWED[Field.REGISTERED_AT], instants),
    comparisons(Field.RUNNING_TASKS.value, ALLOWED[Field.RUNNING_TASKS], st.sampled_from(["0", "1", "2"])),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=8,
)
values = st.dictionaries(names, texts, max_size=3)
subjects = st.builds(
    lambda values, bare, **fields: Subject(attributes=frozenset(values) | bare, values=values, **fields),
    values,
    st.frozensets(names, max_size=1),
    connected=st.booleans(),
    groups=st.dictionaries(texts, st.integers(1, 2), max_size=2),
    running=st.integers(0, 2),
    agent_version=versions | st.just(""),
    ec2_instance_id=texts,
    registered_at=st.sampled_from([None, 1529280000.0, 1529360908.5, 1529360909.0]),
)


@given(trees)
def test_what_is_written_reads_as_the_same_tree(tree):
    assert parse(written(tree)) == tree


@given(trees, subjects)
def test_evaluation_is_what_the_words_mean(tree, subject):
    assert Query(tree).matches(subject) is meaning(tree, subject)
    assert bool(Query(tree).mismatch(subject)) is not meaning(tree, subject)


def meaning(tree, subject):
    """The language's meaning said again, as plainly as possible and without any speed."""
    if isinstance(tree, Not):
        return not meaning(tree.part, subject)
    if isinstance(tree, And):
        return False not in [meaning(part, subject) for part in tree.parts]
    if isinstance(tree, Or):
        return True in [meaning(part, subject) for part in tree.parts]
    negative = tree.operator.value.startswith("!")
    asked = tree.operator.value.removeprefix("!")
    if tree.subject == "task:group":
        hits = [group for group in subject.groups if asked == "exists" or holds(asked, group, tree.arguments)]
        return bool(hits) is not negative
    value = value_of(tree.subject, subject)
    if asked == "exists":
        return (value is not None) is not negative
    if value is None:
        return False
    if tree.subject == "registeredAt":
        at = {"2018-06-18": 1529280000}.get(tree.arguments[0], 1529360908)
        return standing(tree.operator.value, int(value), at)
    if tree.subject == "runningTasksCount":
        return standing(tree.operator.value, value, int(tree.arguments[0]))
    if tree.subject == "agentVersion":
        return standing(tree.operator.value, padded(value), padded(tree.arguments[0]))
    return holds(asked, value, tree.arguments) is not negative


def holds(asked, value, arguments):
    if asked in ("==", "=", "in"):
        return value in arguments
    if asked in ("=~", "~"):
        return {
            "a": lambda: value == "a",
            "a.*": lambda: value[:1] == "a" and "\n" not in value,
            "(a|b)+": lambda: bool(value) and set(value) <= set("ab"),
            "[a-c]{1,2}": lambda: 1 <= len(value) <= 2 and set(value) <= set("abc"),
            ".*'.*": lambda: "'" in value and "\n" not in value,
            "\\d+": lambda: bool(value) and set(value) <= set("0123456789"),
            "": lambda: value == "",
        }[arguments[0]]()
    numbers = all(one and set(one) <= set("0123456789.") and "" not in one.split(".") for one in (value, arguments[0]))
    if numbers:
        return standing(asked, padded(value), padded(arguments[0]))
    return standing(asked, value, arguments[0])


def value_of(name, subject):
    match name:
        case "agentConnected":
            return str(subject.connected).lower()
        case "agentVersion":
            return subject.agent_version or None
        case "ec2InstanceId":
            return subject.ec2_instance_id or None
        case "registeredAt":
            return subject.registered_at
        case "runningTasksCount":
            return subject.running
    name = name.removeprefix("attribute:")
    return subject.values.get(name, "") if name in subject.attributes else None


def padded(text):
    return [*map(int, text.split(".")), 0, 0, 0, 0, 0][:5]


def standing(asked, one, other):
    ways = {"==": "eq", "!=": "ne", ">": "gt", ">=": "ge", "<": "lt", "<=": "le"}
    return getattr(operator, ways[asked])(one, other)


FRAGMENTS = r"""
attribute: a task:group agentVersion registeredAt runningTasksCount agentConnected true == != ! =~ !~ > in !in exists
[ ] ( ) , ' " and && or || not 1.2 3 2018-02-30 0001-01-01T00:00:00+14:00 99999999999999999999999999999999
(?i) a{2, { \ \d * + ^ $ [^ - | .
"""
fragments = st.sampled_from([*FRAGMENTS.split(), " ", "\x00", "\n"])


@given(
    st.text(max_size=60)
    | st.lists(fragments, max_size=14).flatmap(lambda few: st.sampled_from(["", " "]).map(lambda glue: glue.join(few)))
)
@settings(max_examples=500)
def test_whatever_a_stranger_sends_is_understood_or_refused_with_the_one_error(text):
    try:
        query = read(text)
    except QueryError as error:
        assert 0 <= error.position <= len(text)
        return
    query.matches(SUBJECT)
    assert query.mismatch(EMPTY) or query.matches(EMPTY)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 2000,
        "!" * 2000,
        "not " * 500,
        "attribute:a in [" + "a," * 980 + "a]",
        " or ".join(["attribute:a==b"] * 110),
        "attribute:a =~ (" * 120,
        "attribute:a =~ " + "(" * 1900,
        "attribute:a =~ " + "a|" * 900,
        "attribute:a =~ (((((a{9}){9}){9}){9}){9}){9}",
        "attribute:a =~ ((((((){9}){9}){9}){9}){9}){9}",
        "attribute:a =~ (.?){250}",
        "attribute:a == '" + "''" * 950,
    ],
)
def test_the_worst_expressions_cost_little_to_read(expression):
    begin = time.process_time()
    with contextlib.suppress(QueryError):
        read(expression).matches(SUBJECT)

    assert time.process_time() - begin < 0.25


def test_every_example_of_the_documentation_is_understood():
    page = (Path(__file__).parents[3] / "docs" / "placement.md").read_text()
    examples = page.split("```text\n")[1].split("```")[0].splitlines()

    assert len(examples) > 10
    for example in examples:
        assert parse(written(parse(example))) == parse(example)
