"""Third-party platforms that call back: a command is a task there, and they say what becomes of it.

- `description`: what there is to know about a platform, and how its callbacks are read.
- `file` and `presets.toml`: descriptions, as people write them.
- `forms` and `pointers`: what is filled in for each command, and where things stand in JSON.
- `addresses`: where requests may go.
- `requests` and `wire`: make tasks, and ask for them to be stopped.

Whoever only reads callbacks need not load what makes requests, so nothing is imported here.
"""
