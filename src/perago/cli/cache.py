"""``perago cache``: what the object cache of this host holds."""

from __future__ import annotations

import typer

from perago.cli import output
from perago.cli.json_option import AsJson

cache_app = typer.Typer(
    rich_markup_mode=None,
    name="cache",
    help="See or clear the object cache of this host.",
    no_args_is_help=True,
)


@cache_app.command()
def status(as_json: AsJson = False) -> None:
    """Show where the cache is, and how much of its limit is used."""
    from perago.settings import load_settings
    from perago.wiring.ports import open_cache

    cache = open_cache(load_settings())
    found, limit = cache.space.status(), cache.space.limit
    if as_json:
        output.emit_json(
            {
                "folder": str(cache.folder),
                "files": found.files,
                "bytes": found.size,
                "limit_bytes": limit,
            }
        )
        return
    used = f"{found.files} files, {found.size} bytes"
    output.say(f"{cache.folder}: {used}, {f'at most {limit}' if limit else 'switched off'}")


@cache_app.command()
def clear(as_json: AsJson = False) -> None:
    """Remove every file of the cache; attempts that run are not disturbed."""
    from perago.settings import load_settings
    from perago.wiring.ports import open_cache

    cache = open_cache(load_settings())
    try:
        removed = cache.clear()
    except OSError as error:
        output.note(f"{cache.folder}: {error}; run the command again")
        raise typer.Exit(1) from None
    if as_json:
        output.emit_json(
            {"folder": str(cache.folder), "files": removed.files, "bytes": removed.size}
        )
    else:
        output.say(f"{cache.folder}: removed {removed.files} files, {removed.size} bytes")
