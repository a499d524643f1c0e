"""Breaks one promise behind everybody's back, to show that the demo would notice.

Most are broken in the tables, with SQL, and one in the journal, with an answer that nobody got.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from onward.demo.trading.deals import OPEN
from onward.demo.trading.evidence import Evidence
from onward.demo.trading.journal import Told
from onward.store.database import Pool

# By the name of the finding that has to speak up; some are noticed by others as well.
_TABLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "every-cent": """
            UPDATE accounts SET available = available + 1
             WHERE (user_id, asset) IN (SELECT user_id, asset FROM accounts
                                         WHERE asset = 'EUR' ORDER BY user_id LIMIT 1)
        """,
        "every-piece": """
            UPDATE accounts SET available = available + 1
             WHERE (user_id, asset) IN (SELECT user_id, asset FROM accounts
                                         WHERE asset LIKE 'item:%' ORDER BY user_id LIMIT 1)
        """,
        "never-below-nothing": """
            INSERT INTO account_changes (user_id, asset, available, held, at)
            SELECT user_id, asset, 0, -1 - held, now() FROM accounts LIMIT 1
        """,
        "done-once": """
            INSERT INTO transfers
            SELECT operation_id, 2, asset, amount, from_part, from_user, to_part, to_user
              FROM transfers WHERE from_part = 'outside' LIMIT 1
        """,
        "refused-is-nothing": """
            INSERT INTO operations (at, kind, user_id, asset, amount)
            SELECT now(), kind, user_id, asset, 1 FROM operations WHERE kind = 'deposit' LIMIT 1
        """,
        "one-deal": """
            INSERT INTO deals (created_at, item_id, currency, price, operation_id, buy_order_id,
                               sell_order_id, buyer, seller, buyer_commission, seller_commission)
            SELECT created_at, item_id, currency, price, operation_id, sell_order_id,
                   buy_order_id, seller, buyer, 0, 0
              FROM deals LIMIT 1
        """,
        "never-oneself": """
            UPDATE orders o SET user_id = d.buyer
              FROM (SELECT sell_order_id, buyer FROM deals LIMIT 1) AS d
             WHERE o.id = d.sell_order_id
        """,
        "within-limits": """
            UPDATE deals SET price = price * 2 WHERE id = (SELECT min(id) FROM deals)
        """,
        "nothing-crossed": """
            UPDATE orders o SET price = 1000000000
             WHERE o.id = (SELECT b.id FROM orders b
                            WHERE b.status = $1 AND b.side = 'buy'
                              AND EXISTS (SELECT FROM orders s
                                           WHERE s.status = $1 AND s.side = 'sell'
                                             AND s.item_id = b.item_id
                                             AND s.currency = b.currency
                                             AND s.user_id <> b.user_id)
                            LIMIT 1)
        """,
        "books-agree": """
            UPDATE accounts SET available = available + 1, held = held - 1
             WHERE (user_id, asset) IN (SELECT user_id, asset FROM accounts
                                         WHERE held > 0 LIMIT 1)
        """,
    }
)
_FORGED: Final = "one-winner"
PLANTS: Final = (*_TABLES, _FORGED)


async def plant(pool: Pool, evidence: Evidence, name: str) -> list[Told]:
    """Break the promise of this name once; returns answers to be added to the journal."""
    if name == _FORGED:
        return [_second_winner(evidence)]
    given = (OPEN,) if "$1" in _TABLES[name] else ()
    done = await pool.execute(_TABLES[name], *given)
    assert done.endswith(" 1"), done  # noqa: S101 - a plant that touches nothing shows nothing
    return []


def _second_winner(evidence: Evidence) -> Told:
    """Somebody else changes what was changed, with the same tag."""
    first = next(told for told in evidence.accepted.values() if told.wanted.tag is not None)
    return first._replace(wanted=first.wanted._replace(key="forged"))
