"""``python -m perago`` is the ``perago`` command."""

from perago.cli import main

if __name__ == "__main__":
    main()
