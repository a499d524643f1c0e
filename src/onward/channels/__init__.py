"""How a command reaches a host: one module a way, all behind the `Channel` of `base`."""
