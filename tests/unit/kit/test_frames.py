"""A file of frames gives back what was written whole, whatever was cut off or damaged behind it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.kit.frames import HEAD_BYTES, FrameFile, framed, read_frames

payloads = st.lists(st.binary(max_size=30), max_size=8)


def written(path: Path, *payloads: bytes) -> int:
    file = FrameFile(path, 0)
    for one in payloads:
        file.append(one)
    file.sync()
    file.close()
    return file.end


@given(payloads, st.integers(0, 200))
def test_a_file_that_was_cut_anywhere_gives_its_whole_frames(tmp_path_factory, frames, cut):
    path = tmp_path_factory.mktemp("frames") / "f"
    written(path, *frames)
    data = path.read_bytes()[:cut]
    path.write_bytes(data)
    expected, at = [], 0
    for one in frames:
        at += HEAD_BYTES + len(one)
        if at <= len(data):
            expected.append(one)

    assert [one.payload for one in read_frames(path)] == expected


def test_a_damaged_frame_ends_the_file_and_the_next_writer_cuts_it_off(tmp_path):
    path = tmp_path / "f"
    written(path, b"one", b"two", b"three")
    data = bytearray(path.read_bytes())
    data[len(framed(b"one")) + HEAD_BYTES] ^= 1
    path.write_bytes(data)
    found = list(read_frames(path))
    file = FrameFile(path, found[-1].end)
    file.append(b"four")
    file.close()

    assert [one.payload for one in read_frames(path)] == [b"one", b"four"]
    assert [one.payload for one in read_frames(path, found[0].end)] == [b"four"]


def test_a_length_that_is_none_ends_the_file(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(framed(b"one") + b"\xff" * 64)

    assert [one.payload for one in read_frames(path)] == [b"one"]


def test_a_write_that_fails_leaves_whole_frames(tmp_path, monkeypatch):
    path = tmp_path / "f"
    file = FrameFile(path, 0)
    file.append(b"one")
    import os

    genuine = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda handle, data, at: genuine(handle, data[:5], at))
    with pytest.raises(OSError, match="only 5 were taken"):
        file.append(b"two")
    monkeypatch.undo()
    file.append(b"three")
    file.close()

    assert [one.payload for one in read_frames(path)] == [b"one", b"three"]
