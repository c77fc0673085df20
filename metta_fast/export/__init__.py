"""Exports a trained policy as one file for programs without metta_fast: TorchScript, torch.export or ONNX.

    checkpoint ─► Step (step.py): one row of B agents, in torch's own operators
               ─► write a temporary file beside FILE (formats.py)
               ─► load it again and compare with the policy (check.py)
               ─► rename into place, with FILE.json, which describes inputs and outputs (describe.py)

    metta-fast export runs/<name> --out policy.onnx
    metta_fast.export_policy("runs/<name>", "policy.pt2")

`export_policy` is in main.py, the command in command.py.
"""
