"""A day of a web shop's events as its tracker exports them: gzipped JSON lines, dirt included.

Everything follows from a seed, so a day is the same wherever it is made. It is made line by line
and written part by part: a large day takes time, not memory.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import accumulate, islice
from pathlib import Path
from random import Random
from typing import Any

PART_LINES = 50_000
# How busy each hour is: a quiet night, a bump at lunch, the evening on the sofa.
CURVE = (9, 5, 3, 2, 2, 4, 10, 20, 31, 38, 42, 47, 56, 52, 45, 43, 46, 53, 66, 82, 95, 88, 55, 24)
# Each category with its share of the interest and its range of prices in cents.
CATEGORIES = {
    "books": (30, 690, 3_900),
    "kitchen": (22, 990, 14_900),
    "toys": (18, 790, 6_900),
    "sports": (14, 1_490, 19_900),
    "garden": (10, 890, 24_900),
    "music": (6, 1_990, 59_900),
}
COUNTRIES = {"DE": 46, "FR": 17, "AT": 11, "NL": 9, "PL": 8, "CH": 6, "JP": 3}
BROWSERS = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 19_3 like Mac OS X) Safari/605.1",
    "Mozilla/5.0 (Linux; Android 16) Chrome/145.0 Mobile Safari/537.36",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/145.0 Safari/537.36",
    "Mozilla/5.0 (X11; Linux x86_64; rv:147.0) Gecko/20100101 Firefox/147.0",
)
CRAWLERS = (
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
)
# Servers abroad stamp with their own offset: the same moments, written differently.
ABROAD = tuple(timezone(timedelta(hours=hours)) for hours in (9, 1, -5))
_FIELDS_THAT_GET_LOST = ("visitor", "sku", "price_cents")


@dataclass(frozen=True, slots=True)
class Product:
    """Something the shop sells."""

    sku: str
    category: str
    price_cents: int


def catalog() -> list[Product]:
    """Twenty products in each category."""
    random = Random("catalog")
    return [
        Product(f"{category[:2].upper()}-{number:03}", category, random.randint(low, high))
        for category, (_, low, high) in CATEGORIES.items()
        for number in range(1, 21)
    ]


def write_export(folder: Path, day: date, rows: int, seed: int = 1) -> list[Path]:
    """Write a day's export of exactly ``rows`` lines; the files, in order."""
    folder.mkdir(parents=True, exist_ok=True)
    source = lines(day, rows, seed)
    parts: list[Path] = []
    while part := list(islice(source, PART_LINES)):
        path = folder / f"part-{len(parts):03}.jsonl.gz"
        # No time stamp in the file: the same day is the same bytes.
        with gzip.GzipFile(path, "wb", compresslevel=5, mtime=0) as target:
            target.writelines(f"{line}\n".encode() for line in part)
        parts.append(path)
    return parts


def lines(day: date, rows: int, seed: int = 1) -> Iterator[str]:
    """The lines of a day's export, about in order of time."""
    return islice(_day(day, rows, Random(f"{seed}:{day}")), rows)


def _day(day: date, rows: int, random: Random) -> Iterator[str]:
    """Visits, minute by minute, as many as the hour brings; the last one may be over the count."""
    shop, dirt = _Shop(random), Random(random.random())
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    per_minute = [weight for weight in CURVE for _ in range(60)]
    made = 0
    for minute, share in enumerate(accumulate(per_minute)):
        quota = rows * share / sum(per_minute)
        while made < quota:
            start = midnight + timedelta(minutes=minute, seconds=random.random() * 60)
            for event in shop.session(start):
                if event["at"] >= midnight + timedelta(days=1):
                    break  # what follows is in the next day's export
                for line in _soiled(dirt, event):
                    made += 1
                    yield line


class _Shop:
    """Who comes, and what they do."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._products = catalog()
        # Within a category the first products are looked at most.
        self._interest = list(
            accumulate(
                CATEGORIES[product.category][0] / (1 + place % 20) ** 0.6
                for place, product in enumerate(self._products)
            )
        )

    def session(self, start: datetime) -> Iterator[dict[str, Any]]:
        """The events of one visit."""
        random = self._random
        kind = random.random()
        visit = {
            "session": f"s{random.getrandbits(48):012x}",
            "visitor": f"v{random.getrandbits(40):010x}",
            "country": random.choices(list(COUNTRIES), list(COUNTRIES.values()))[0],
            "agent": random.choice(CRAWLERS if kind < 0.02 else BROWSERS),
        }
        # A scraper hides behind a browser's name and is given away by its pace.
        scraper = 0.02 <= kind < 0.022
        if kind < 0.02 or scraper:
            yield from self._crawl(start, visit, random.randint(60, 120) if scraper else 12)
        else:
            yield from self._shop(start, visit)

    def _crawl(self, at: datetime, visit: dict[str, str], pages: int) -> Iterator[dict[str, Any]]:
        for _ in range(pages):
            at += timedelta(seconds=0.2 + self._random.random())
            yield self._event(at, visit, "view", self._pick())

    def _shop(self, at: datetime, visit: dict[str, str]) -> Iterator[dict[str, Any]]:
        """Looks at some products, puts a few into the cart, and sometimes buys those."""
        random, cart = self._random, []
        for _ in range(min(1 + int(random.expovariate(0.28)), 30)):
            product = self._pick()
            yield self._event(at, visit, "view", product)
            at += timedelta(seconds=random.uniform(4, 70))
            if random.random() < 0.06:
                cart.append(product)
                yield self._event(at, visit, "cart", product)
                at += timedelta(seconds=random.uniform(2, 20))
        if cart and random.random() < 0.3:
            for product in cart:
                yield self._event(at, visit, "purchase", product)

    def _pick(self) -> Product:
        return self._random.choices(self._products, cum_weights=self._interest)[0]

    def _event(
        self, at: datetime, visit: dict[str, str], kind: str, product: Product
    ) -> dict[str, Any]:
        random = self._random
        return {
            "id": f"{random.getrandbits(64):016x}",
            "at": at,
            **visit,
            "kind": kind,
            "sku": product.sku,
            "category": product.category,
            "price_cents": product.price_cents,
            "quantity": 1 if kind != "purchase" or random.random() < 0.85 else 2,
        }


def _soiled(dirt: Random, event: dict[str, Any]) -> Iterator[str]:
    """One event as the export has it: mostly as it is, and now and then not."""
    at: datetime = event["at"]
    roll = dirt.random()
    if roll < 0.003:  # the tracker was cut off in the middle of a line
        text = _line(event, at)
        yield text[: dirt.randrange(20, len(text) - 20)]
    elif roll < 0.007:
        lost = dirt.choice(_FIELDS_THAT_GET_LOST)
        yield _line({key: value for key, value in event.items() if key != lost}, at)
    elif roll < 0.009:  # a stamp without an offset could be any moment
        yield _line(event, at.replace(tzinfo=None))
    elif roll < 0.013:  # a phone that was offline until today
        yield _line(event, at - timedelta(days=1))
    elif roll < 0.045:
        yield _line(event, at.astimezone(dirt.choice(ABROAD)))
    elif roll < 0.058:  # sent again because the answer got lost
        yield _line(event, at)
        yield _line(event, at)
    else:
        yield _line(event, at)


def _line(event: dict[str, Any], at: datetime) -> str:
    return json.dumps({**event, "at": at.isoformat(timespec="milliseconds")})
