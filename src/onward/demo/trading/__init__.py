"""The second demonstration: two crowds trade, and no cent is lost on the way.

- `script`: who is there, what is traded, and how a price wanders.
- `stage`, `line`: the services, which are real processes, and how somebody reaches them.
- `asking`, `journal`: how something is asked for, and what everybody was told.
- `trader`, `crowd`: what somebody with a key does, and all of them at once.
- `watching`, `state`: how it goes; `screen` shows that in a terminal, as `drawing` draws it.
- `evidence`, `totals`: what is left in the end, and where everything is.
- `invariants`, `tags`, `deals`: whether every promise was kept.
- `sabotage`: breaks one on purpose, to show that it would be noticed.
- `conductor`: runs it from the first deposit to the last finding.
"""
