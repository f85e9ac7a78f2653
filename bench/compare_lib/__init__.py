"""The parts of bench/compare; `main` puts them together. Standard library only."""
