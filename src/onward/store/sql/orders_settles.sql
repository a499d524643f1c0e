-- Which deal took it, and what it cost; before that, the commission was the most it could be.
                   deal_id = coalesce((n.data ->> 'deal_id')::bigint, c.deal_id),
                   commission = coalesce((n.data ->> 'commission')::bigint, c.commission)
