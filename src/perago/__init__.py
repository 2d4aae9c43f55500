"""Run typed Python functions as transactions over LakeFS, driven by Conductor.

The public names are those of :mod:`perago._public`, which is loaded when one of them is first used,
so that the command line starts quickly and ``import perago`` loads no other package.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perago._public import *  # noqa: F403  type checkers resolve it

    __version__: str
else:

    def __getattr__(name: str) -> object:
        """Load a public name, ``__all__`` or ``__version__``."""
        if name == "__version__":
            from importlib.metadata import version

            return version("perago-spark")
        if name == "__all__":
            return _public_names()
        if not name.startswith("_") and name in _public_names():
            from perago import _public

            return getattr(_public, name)
        raise AttributeError(f"module 'perago' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *_public_names(), "__all__", "__version__"})

    def _public_names() -> list[str]:
        from perago import _public

        # pytest adds names like "@py_builtins" to the modules of a package that has a plugin.
        return sorted(n for n in vars(_public) if n.isidentifier() and not n.startswith("_"))
