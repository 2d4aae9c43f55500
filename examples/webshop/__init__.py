"""The tasks of a web shop's day, in the order in which :mod:`webshop.workflow` chains them.

``perago start webshop`` serves all four.
"""

from webshop.aggregate import aggregate_sales
from webshop.clean import clean_events
from webshop.ingest import ingest_events
from webshop.quality import quality_report

__all__ = ["aggregate_sales", "clean_events", "ingest_events", "quality_report"]
