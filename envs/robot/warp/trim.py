"""Leaves out what MuJoCo Warp does for nothing in a model. Results are the same, to the bit but for a solver's start.

    add_flags(mjm, own)                  # before put_model: features that the model does not have
    tune(model, mjm, reads)              # after it
    with Trimmed(mjm, data, own):        # around its step: launches that add nothing, the solver's loop

At 16,384 Ants a step's time is that of its 1100 to 2800 kernels and the gaps between them, so each kernel counts.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

SMALL = 32
"""Degrees of freedom up to which a Cholesky factorisation takes one warp of threads: faster than two."""
UNROLLED, EACH = 3, 2
"""Iterations of the solver before it is asked whether any world goes on, and between the next questions. With thousands
of worlds some take five or more; iterations of a world that has converged do nothing."""


def add_flags(mjm: Any, own: Collection[str]) -> None:
    """Disables features of a mujoco.MjModel that it does not have.

    Args:
        own: fields that worlds have of their own, which may turn a feature on.
    """
    import mujoco

    flag, unused = mujoco.mjtDisableBit, 0
    if not mjm.dof_frictionloss.any() and not mjm.tendon_frictionloss.any():
        unused |= 0 if {"dof_frictionloss", "tendon_frictionloss"} & set(own) else flag.mjDSBL_FRICTIONLOSS
    if not mjm.jnt_limited.any() and not mjm.tendon_limited.any():
        unused |= flag.mjDSBL_LIMIT
    mjm.opt.disableflags |= int(unused)


def tune(model: Any, mjm: Any, reads: Collection[str], *, drawn: bool = False) -> None:
    """Sets mujoco_warp.Model's fields that change its speed.

    Newton's method starts from the last acceleration also where a world has no constraint, and then ends in one step;
    without that the unconstrained acceleration is solved for in all worlds. The step leaves rounding errors where the
    constraints' forces are 0, so nothing is changed where rules read them. drawn: whether pictures are.
    """
    model.opt.run_qacc_smooth = "qfrc_constraint" in reads
    if mjm.nv <= SMALL:
        model.block_dim.update_gradient_cholesky = 32
    if not mjm.nsensor and not drawn:
        model.ncam = model.nlight = 0  # only sensors and pictures read where they are


class Trimmed:
    """A context in which MuJoCo Warp's host code launches less.

    Forces of gravity compensation are left out where no body has any, and forces applied to bodies, which nothing
    here applies. The solver's loop asks less often whether to go on.
    """

    def __init__(self, mjm: Any, data: Any, own: Collection[str]) -> None:
        """data: mujoco_warp.Data. own: fields that worlds have of their own."""
        self._compensates = bool(mjm.body_gravcomp.any()) or "body_gravcomp" in own
        self._applied = data.xfrc_applied

    def _adds_nothing(self, kernel: Any, inputs: Any) -> bool:
        if kernel.key == "_apply_ft":
            return any(given is self._applied for given in inputs)
        return not self._compensates and bool(kernel.key.startswith("_gravity_force_"))

    def __enter__(self) -> None:
        import warp

        self._real = launch, loop = warp.launch, warp.capture_while

        def launch_some(kernel: Any, dim: Any, inputs: Any = (), *args: Any, **keys: Any) -> Any:
            return None if self._adds_nothing(kernel, inputs) else launch(kernel, dim, inputs, *args, **keys)

        def ask_less(condition: Any, while_body: Any, stream: Any = None, **keys: Any) -> None:
            if getattr(while_body, "__name__", "") != "_solver_iteration":
                loop(condition, while_body, stream, **keys)
                return

            def body(**given: Any) -> None:
                for _ in range(EACH):
                    while_body(**given)

            for _ in range(UNROLLED):
                while_body(**keys)
            loop(condition, body, stream, **keys)

        warp.launch, warp.capture_while = launch_some, ask_less

    def __exit__(self, *_: object) -> None:
        import warp

        warp.launch, warp.capture_while = self._real
