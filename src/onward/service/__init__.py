"""The service as a process: API, engine and reaper on one event loop, from start to end.

- `up`: all of it, behind `onward up`.
- `worker`: an engine alone, as a program of its own, so that it can be killed by itself.
- `working`: the engine of a process, made from the settings.
- `listening`: the address, and the HTTP server on it.
- `leaving`: what signals ask of a process.
- `logs`: what a process writes about itself.
- `heads`: the head of a request, of a sensible size and there in time.
- `garbage`: how often a process looks for garbage.
"""
