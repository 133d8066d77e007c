"""Log and JSON streams come out the same whatever pieces they arrive in."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.runtime.contract import LogLine, Refused, Unavailable
from sexton.runtime.docker_lines import LARGEST_FRAME, LONGEST_JSON, LONGEST_LINE, JsonLines, LogLines

STAMP = "2026-01-02T03:04:05.5Z"
TIME = 1767323045.5


def frame(stream: int, text: str, stamp: str = STAMP) -> bytes:
    message = f"{stamp} {text}".encode()
    return bytes([stream, 0, 0, 0]) + len(message).to_bytes(4) + message


def read(data: bytes, cuts: list[int] | None = None) -> list[LogLine]:
    decoder, lines, begin = LogLines(), [], 0
    for end in [*sorted(cut % (len(data) + 1) for cut in cuts or []), len(data)]:
        lines += decoder.feed(data[begin:end])
        begin = end
    return lines + decoder.finish()


words = st.text(st.characters(blacklist_characters="\r\n", blacklist_categories=["Cs"]), max_size=30)
cuts = st.lists(st.integers(0, 2000), max_size=10)


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.tuples(st.sampled_from([1, 2]), words)), cuts)
def test_a_framed_log_is_read_whatever_its_pieces(told: list[tuple[int, str]], cuts: list[int]) -> None:
    data = b"".join(frame(stream, text + "\n") for stream, text in told)

    assert [(line.stream, line.text, line.time) for line in read(data, cuts)] == [
        ("stderr" if stream == 2 else "stdout", text, TIME) for stream, text in told
    ]


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(words), cuts)
def test_a_terminal_s_log_is_read_whatever_its_pieces(told: list[str], cuts: list[int]) -> None:
    data = "".join(f"{STAMP} {text}\r\n" for text in told).encode()

    assert [(line.stream, line.text, line.time) for line in read(data, cuts)] == [
        ("stdout", text, TIME) for text in told
    ]


def test_the_parts_of_a_long_line_are_joined_per_stream() -> None:
    data = frame(1, "be") + frame(2, "err\n") + frame(1, "gin", "2026-01-02T03:04:06Z") + frame(1, "ning\n")

    assert [(line.stream, line.text, line.time) for line in read(data)] == [
        ("stderr", "err", TIME),
        ("stdout", "beginning", TIME),
    ]


@pytest.mark.parametrize("data", [frame(1, "last"), f"{STAMP} last".encode()])
def test_a_last_line_needs_no_end(data: bytes) -> None:
    assert [line.text for line in read(data)] == ["last"]


def test_a_line_without_end_is_handed_on_in_parts() -> None:
    part = "x" * (LONGEST_LINE // 2)
    assert [len(line.text) for line in read(frame(1, part) * 3 + frame(1, "end\n"))] == [3 * len(part), 3]

    raw = LogLines()
    told = raw.feed(f"{STAMP} ".encode() + b"x" * LONGEST_LINE)
    assert [len(line.text) for line in told] == [LONGEST_LINE]
    assert [line.text for line in raw.feed(b"end\n")] == ["end"]


def test_text_without_a_time_keeps_all_its_words() -> None:
    assert read(b"hello to you\n") == [LogLine(stream="stdout", text="hello to you")]


def test_the_engine_s_own_words_in_a_log_are_a_refusal() -> None:
    message = b"Error grabbing logs: invalid character"
    with pytest.raises(Refused, match="Error grabbing logs"):
        read(bytes([3, 0, 0, 0]) + len(message).to_bytes(4) + message)


def test_a_stream_out_of_place_is_not_swallowed() -> None:
    with pytest.raises(Unavailable):
        read(frame(1, "good\n") + b"\x09\x00\x00\x00garbage!")
    with pytest.raises(Unavailable):
        read(bytes([1, 0, 0, 0]) + (LARGEST_FRAME + 1).to_bytes(4))


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.binary(min_size=1, max_size=20).filter(lambda b: b"\n" not in b and b.strip())), cuts)
def test_json_lines_come_whole(told: list[bytes], cuts: list[int]) -> None:
    data, lines, seen, begin = b"\n".join(told), JsonLines(), [], 0
    for end in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        seen += lines.feed(data[begin:end])
        begin = end

    assert seen + lines.finish() == told


def test_a_json_line_without_end_does_not_fill_the_memory() -> None:
    lines = JsonLines()
    with pytest.raises(Unavailable):
        for _ in range(LONGEST_JSON // 65536 + 1):
            lines.feed(b"x" * 65536)
