"""What reproduces the paper's tables, measures time and memory, and studies the methods.

`python -m benchmarks` lists the scripts; README.md describes the folders and the result files.
"""

from pathlib import Path

ROOT = Path(__file__).parents[1]  # of the repository
