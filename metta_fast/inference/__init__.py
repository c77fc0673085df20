"""Uses a trained policy: loads it, plays it, evaluates it; imported by episodes/, export/ and run/."""
