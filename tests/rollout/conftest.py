"""One torch thread in all tests of this folder."""

from tests.one_thread import one_torch_thread

__all__ = ["one_torch_thread"]
