"""fused_act."""
