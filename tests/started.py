"""What is started for a block of a test and is gone after it, also when its start fails half-way."""

from __future__ import annotations

from typing import Self


class Started:
    """A context manager over ``start`` and ``close``; the latter may come at any time, and more than once."""

    def start(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
