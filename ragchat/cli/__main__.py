"""``python -m ragchat.cli``, for where the console script is not on the path."""

from __future__ import annotations

from ragchat.cli.entry import main

if __name__ == "__main__":
    main()
