"""The demonstration: a thousand hosts, a bad network, people who disagree, a worker that is killed.

- `script`: what is played.
- `child`, `programs`, `stage`: the processes it takes, none of which outlives the demo.
- `caller`: somebody who calls the API.
- `conductor`: runs it from the first host to the last finding.
- `watching`, `state`: how it goes; `screen` shows that in a terminal.
- `evidence`, `invariants`: what is left in the end, and whether every promise was kept.
- `sabotage`: breaks one on purpose, to show that it would be noticed.
"""
