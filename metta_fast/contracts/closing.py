"""A base for what must be closed: `with` closes it, however the block ends."""

from __future__ import annotations

from typing import Self


class Closing:
    """Subclass it and write `close`, which may be called twice."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
