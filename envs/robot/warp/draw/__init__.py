"""Draws robots on MuJoCo Warp: pictures of their models' cameras, of all worlds at once, straight into rows.

    forward ─► context.py: geoms' places into the tree, rays ─► packed pixels ─► pack.py ─► rows.py: Buffers' row t+1

    context.py   MuJoCo Warp's batched renderer with the settings of the CPU's pictures (camera/camera_child.py)
    pack.py      a kernel: packed pixels and depths to a row's bytes
    rows.py      WarpRows: which leaf has which camera, and the joints' positions beside them

It draws geoms and flexes with their textures and lights. MuJoCo's OpenGL draws sites, tendons and skins as well.
"""
