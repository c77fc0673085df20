"""Encodes images, [T, B, height, width, channels] or with the channels first, as one vector a row, [T, B, width].

    uint8 ─► first convolution (÷ 255 is in its weights) ─► … ─► flat ─► one dense layer ─► activation

The images of one row, if there are several, have convolutions of their own and share the dense layer. Their memory
format is channels_last and their arithmetic autocast's. Sizes: metta_fast/config/encoding/image_layers.py.

    metta-fast train env=metta_fast.envs.sanity.catch:make trainer.total_timesteps=200000
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metta_fast.config.encoding.image_layers import IMPALA, image_size, nature_layers
from metta_fast.contracts.env import EnvSpec, Leaf
from metta_fast.policy.initial import RELU, orthogonal_linear
from metta_fast.policy.plan import ACTIVATIONS


class FirstConvolution(nn.Conv2d):
    """A convolution over pixels. Those of uint8 are divided by 255: in its weights, not pixel by pixel."""

    def forward(self, pixels: Tensor) -> Tensor:
        kind = pixels.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else self.weight.dtype
        weight = self.weight / 255 if pixels.dtype == torch.uint8 else self.weight
        return F.conv2d(pixels.to(dtype), weight, self.bias, self.stride, self.padding)


class Residual(nn.Module):
    """Adds two convolutions of 3 × 3 to what goes in."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (_started(nn.Conv2d(channels, channels, 3, padding=1)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.relu(self.first(F.relu(x))))


def nature(channels: int, height: int, width: int) -> nn.Sequential:
    """Makes the three convolutions of Mnih et al. 2015."""
    parts: list[nn.Module] = []
    for i, layer in enumerate(nature_layers(height, width)):
        kind = nn.Conv2d if i else FirstConvolution
        parts += [_started(kind(channels, layer.channels, layer.kernel, layer.stride)), nn.ReLU()]
        channels = layer.channels
    return nn.Sequential(*parts, nn.Flatten())


def impala(channels: int, height: int, width: int) -> nn.Sequential:
    """Makes the residual network of Espeholt et al. 2018."""
    parts: list[nn.Module] = []
    for i, out in enumerate(IMPALA):
        kind = nn.Conv2d if i else FirstConvolution
        parts += [_started(kind(channels, out, 3, padding=1)), nn.MaxPool2d(3, 2, 1)]
        parts += [Residual(out), Residual(out)]
        channels = out
    return nn.Sequential(*parts, nn.ReLU(), nn.Flatten())


NETWORKS = {"nature": nature, "impala": impala}
"""policy.image_encoder."""


class ImageEncoder(nn.Module):
    """Convolutions for each image, and one dense layer over all of their outputs."""

    def __init__(self, spec: EnvSpec, width: int, activation: str = "relu", network: str = "nature") -> None:
        super().__init__()
        self.activation = activation
        self.leaves: dict[str, Leaf] = dict(spec.obs)
        sizes = [image_size(name, leaf, network) for name, leaf in spec.obs.items()]
        self.networks = nn.ModuleList(NETWORKS[network](*size) for size in sizes)
        with torch.no_grad():
            outputs = sum(net(torch.zeros(1, *size)).shape[1] for net, size in zip(self.networks, sizes))
        self.dense = orthogonal_linear(outputs, width, RELU)

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        features, rows = [], (0, 0)
        for (name, leaf), net in zip(self.leaves.items(), self.networks):
            pixels = obs[name]
            rows = pixels.shape[:2]  # type: ignore[assignment]
            features.append(net(_channels_last(pixels.flatten(0, 1), leaf.channel_axis)))
        x = torch.cat(features, -1) if len(features) > 1 else features[0]
        return ACTIVATIONS[self.activation](self.dense(x)).unflatten(0, rows)


def _channels_last(pixels: Tensor, axis: int | None) -> Tensor:
    """Returns [rows, channels, height, width], in memory as [rows, height, width, channels]."""
    pixels = pixels.unsqueeze(1) if axis is None else pixels.movedim(axis + 1, 1)
    return pixels.contiguous(memory_format=torch.channels_last)


def _started(layer: nn.Conv2d) -> nn.Conv2d:
    nn.init.orthogonal_(layer.weight, RELU)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
