"""Writes rendered pixels as a row's bytes: a kernel of Warp, the same on a GPU and on the CPU."""

from __future__ import annotations

import warp

warp.set_module_options({"enable_backward": False})


@warp.kernel
def pack_pixels(  # type: ignore[no-untyped-def]
    packed: warp.array2d(dtype=warp.uint32),  # type: ignore[valid-type]
    metres: warp.array2d(dtype=warp.float32),  # type: ignore[valid-type]
    first: int,
    colours: int,
    far: float,
    out: warp.array3d(dtype=warp.uint8),  # type: ignore[valid-type]
):
    """Writes one pixel of one world.

    Args:
        packed: [worlds, pixels of all cameras] 0xAARRGGBB; not read if colours is 0.
        metres: [worlds, pixels of all cameras] along the view, 0 where nothing is hit; not read without a depth.
        first: the camera's first pixel.
        colours: 3, or 0 for depth alone.
        far: metres that 255 stands for; what is further, or nothing, is 255.
        out: [worlds, pixels of the camera, channels]; a channel more than colours is depth.
    """
    world, pixel = warp.tid()  # type: ignore[misc]
    if colours > 0:
        word = packed[world, first + pixel]
        out[world, pixel, 0] = warp.uint8((word >> warp.uint32(16)) & warp.uint32(255))
        out[world, pixel, 1] = warp.uint8((word >> warp.uint32(8)) & warp.uint32(255))
        out[world, pixel, 2] = warp.uint8(word & warp.uint32(255))
    if out.shape[2] > colours:
        distance = metres[world, first + pixel]
        share = 1.0
        if distance > 0.0 and distance < far:
            share = distance / far
        out[world, pixel, colours] = warp.uint8(int(warp.rint(share * 255.0)))
