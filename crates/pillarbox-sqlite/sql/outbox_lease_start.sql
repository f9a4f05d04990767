-- Above which row a claim that begins above ?1 finds the first one without owner, key and stretch; whether it passes others until then
-- that it may take, at the time ?3; how many of the next ?2 are like that one; and whether another stretch begins behind them.
WITH RECURSIVE passed (id, next) AS (
    SELECT ?1,
           (SELECT live.id FROM pillarbox_outbox AS live
             WHERE live.id > ?1 AND owner_token IS NULL AND message_key IS NULL ORDER BY live.id LIMIT 1)
     UNION ALL
    SELECT lease.last_id,
           (SELECT live.id FROM pillarbox_outbox AS live
             WHERE live.id > lease.last_id AND owner_token IS NULL AND message_key IS NULL ORDER BY live.id LIMIT 1)
      FROM passed JOIN pillarbox_outbox_lease AS lease
        ON lease.first_id = (SELECT max(first_id) FROM pillarbox_outbox_lease WHERE first_id <= passed.next)
       AND lease.last_id >= passed.next
),
start (id) AS MATERIALIZED (SELECT coalesce(next - 1, id) FROM passed ORDER BY passed.id DESC LIMIT 1)
SELECT start.id,
       EXISTS (SELECT 1 FROM pillarbox_outbox AS live
                WHERE live.id > ?1 AND live.id <= start.id
                  AND iif(owner_token IS NULL, message_key IS NOT NULL, coalesce(locked_until, 0) <= ?3)),
       (SELECT count(*) FROM (
            SELECT owner_token IS NULL AND message_key IS NULL AS is_plain
              FROM pillarbox_outbox AS live WHERE live.id > start.id ORDER BY live.id LIMIT ?2) WHERE is_plain),
       EXISTS (SELECT 1 FROM pillarbox_outbox_lease WHERE first_id > start.id)
  FROM start;
