"""Deep agents: networks, replay, pure TD targets, and one final class per algorithm."""
