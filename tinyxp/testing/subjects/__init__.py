"""What laws judge: this decoder on some library, a changed copy of it, or somebody else's model."""
