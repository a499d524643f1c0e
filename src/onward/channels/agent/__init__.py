"""The way to hosts on which our own agent runs: it calls us, and is there for as long as it stays.

- `messages`: what the two say to each other, and what is accepted as such.
- `wire`: how that is signed, numbered and dated, and how a connection begins.
"""
