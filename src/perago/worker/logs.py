"""Structured logs: for people on a terminal, JSON lines otherwise, always on stderr."""

from __future__ import annotations

import logging
import sys

import structlog


def configure_logs() -> None:
    """Set up structlog once per process. Every line carries an ``action``."""
    console = sys.stderr.isatty()
    renderer = (
        structlog.dev.ConsoleRenderer(event_key="action")
        if console
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.EventRenamer("action"),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
