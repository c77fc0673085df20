"""Arrays that hold collected experience until the update reads them; imported by rollout/ and algorithms/."""
