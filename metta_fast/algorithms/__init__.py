"""Learning algorithms, and the hooks through which features change them; imported by features/, resolve/ and run/."""
