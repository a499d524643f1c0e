"""The program on a host: it calls the server, does what it is told, once, and remembers it.

- `state`: the directory that is the agent's own: its key, its journal, and that only one uses it.
- `enrolment`: how a token becomes the host's key.
- `journal`: what must survive a kill or a power cut, on disk before anything is started.
- `memory`: the same for the moment, and what a message means for it; no I/O.
- `host`: what happens when a message comes.
- `carrying`: an attempt carried out, in the order that makes a kill at any point safe.
- `voice`: what is said, and said again until it is receipted.
- `running` and `keeper`: a program under its limits, and the end of all that it has started.
- `output`: what it writes, as far as it is passed on and kept.
- `server` and `line`: where the server is, and the connection to it, over and over.
- `program`: all of them together.

It imports neither the store nor the fleet: it has to start fast on a small machine.
"""
