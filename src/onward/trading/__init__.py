"""The second context: accounts with a ledger behind them, orders, and the deals they become."""
