"""Copies nested states: what an algorithm's `state_dict` returns.

state = copied({"policy": policy.state_dict(), "optimizer": optimizer.state_dict()})
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def copied(value: Any) -> Any:
    """Returns the nested dicts and lists with every tensor copied. On a GPU it is one launch per dtype."""
    pairs: dict[tuple[torch.device, torch.dtype], tuple[list[Tensor], list[Tensor]]] = {}

    def new(value: Any) -> Any:
        if isinstance(value, Tensor):
            tensor = value.detach()
            copy = torch.empty_like(tensor)
            copies, sources = pairs.setdefault((tensor.device, tensor.dtype), ([], []))
            copies.append(copy)
            sources.append(tensor)
            return copy
        if isinstance(value, dict):
            return {key: new(entry) for key, entry in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(new(entry) for entry in value)
        return value

    made = new(value)
    for copies, sources in pairs.values():
        torch._foreach_copy_(copies, sources)
    return made
