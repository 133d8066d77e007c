"""Pages of overlapping chunks are those of the whole sorted list, whatever the chunks are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sexton.core.logpage import Chunk, Event, Wanted, choose

times = st.integers(0, 30)
batches = st.lists(st.tuples(st.integers(1, 3), st.lists(times, min_size=1, max_size=6).map(sorted)), max_size=12)


def chunks_of(batches):
    """Each batch a chunk, numbers in the order of their coming."""
    number, chunks, events = 0, [], []
    for stream, stamps in batches:
        rows = []
        for stamp in stamps:
            number += 1
            rows.append(Event(stamp, number, stream, 0, f"{stamp}:{stream}"))
        chunks.append(Chunk(stamps[0], stamps[-1], 10, lambda rows=rows: iter(rows), number))
        events += rows
    return chunks, sorted(events)


@given(
    batches, st.integers(1, 5), st.booleans(), st.sampled_from([None, {1}, {2, 3}]), times, times, st.integers(0, 40)
)
def test_pages_together_are_the_whole_list_once(batches, size, newest, streams, start, end, budget):
    chunks, events = chunks_of(batches)
    expected = [one for one in events if start <= one.time < end and (streams is None or one.stream in streams)]
    wanted = Wanted(frozenset(streams) if streams else None, start, end, newest=newest, events=size, budget=budget)
    found: list[Event] = []
    for _ in range(200):
        page = choose(chunks, wanted)
        assert len(page.events) <= size
        found = [*page.events, *found] if newest else [*found, *page.events]
        if page.more is None:
            break
        wanted = wanted._replace(**{"before" if newest else "after": page.more})
    else:
        raise AssertionError("the pages have no end")

    assert found == expected


@given(batches, st.integers(0, 30))
def test_a_search_that_finds_little_ends_at_places_up_to_which_all_was_seen(batches, budget):
    chunks, events = chunks_of(batches)
    wanted = Wanted(matches=lambda text: text.startswith("7:"), budget=budget)
    found, pages = [], 0
    while True:
        page = choose(chunks, wanted)
        found += page.events
        pages += 1
        if page.more is None:
            break
        wanted = wanted._replace(after=page.more)
        assert pages < 100

    assert found == [one for one in events if one.time == 7]


def test_a_page_holds_no_more_characters_than_it_may_but_one_line_at_least():
    rows = [Event(number, number, 1, 0, "x" * 600) for number in range(5)]
    chunks = [Chunk(0, 4, 1, lambda: iter(rows))]

    assert len(choose(chunks, Wanted(characters=1300)).events) == 2
    assert len(choose(chunks, Wanted(characters=10)).events) == 1
    assert choose(chunks, Wanted(characters=1300, newest=True)).events == tuple(rows[3:])


def test_chunks_that_cannot_be_on_the_page_are_not_read():
    def never():
        raise AssertionError("read in vain")

    near = Chunk(0, 3, 1, lambda: iter([Event(number, number, 1, 0, "x") for number in range(4)]))
    page = choose([Chunk(10, 20, 1, never), near], Wanted(events=2))

    assert [one.time for one in page.events] == [0, 1] and page.more == (1, 1)


@given(batches, st.integers(0, 40), st.integers(0, 40))
def test_what_came_after_a_number_is_found_whatever_its_time_and_nothing_before_is_read(batches, above, upto):
    chunks, events = chunks_of(batches)
    read = []
    watched = [one._replace(read=lambda one=one: read.append(one.last) or one.read()) for one in chunks]
    page = choose(watched, Wanted(came=(above, upto)))

    assert list(page.events) == [one for one in events if above < one.number <= upto]
    assert all(last > above for last in read)
