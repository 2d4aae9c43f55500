"""Imported by workers of tests at their start: coverage counts a worker's supervisor alone.

Executors and Spark's processes inherit the environment. They leave by ``os._exit`` or are killed,
so what they count is lost, and counting makes them slow.
"""

import os

os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
