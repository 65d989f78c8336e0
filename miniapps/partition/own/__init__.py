"""Plans and runs a module of the user's own, `FILE.py:NAME`, by recipes that suit any module."""
