-- A look before a claim, without the write lock: an idle store writes nothing and is in nobody's way. ?2 says whether a dead
-- message holds back later ones of its key, ?3 which partitions are served, ?4 which topics are left out and ?5 above which row
-- is looked, as in outbox_claim.sql.
WITH held (message_key) AS MATERIALIZED (
    SELECT back.message_key
      FROM (SELECT DISTINCT message_key
              FROM pillarbox_outbox INDEXED BY pillarbox_outbox_back
             WHERE fence = -1 AND message_key IS NOT NULL) AS back CROSS JOIN pillarbox_outbox_now
     WHERE EXISTS (
               SELECT 1
                 FROM (SELECT lane.locked_until
                         FROM pillarbox_outbox AS lane
                        WHERE lane.message_key = back.message_key
                          AND (lane.locked_until > now OR (lane.owner_token IS NULL AND lane.fence >= 0))
                        ORDER BY lane.id
                        LIMIT 4) AS next
                WHERE next.locked_until > now)
)
SELECT EXISTS (
           SELECT 1
             FROM pillarbox_outbox AS ready CROSS JOIN pillarbox_outbox_now
            WHERE (owner_token IS NULL OR (coalesce(locked_until, 0) <= now AND lost_lease_count < ?1))
              AND (due_at IS NULL OR due_at <= now)
              AND (expires_at IS NULL OR expires_at > now)
              AND id > ?5
              AND NOT EXISTS (
                   SELECT 1
                     FROM pillarbox_outbox_lease AS lease
                    WHERE lease.first_id = (SELECT max(first_id) FROM pillarbox_outbox_lease WHERE first_id <= ready.id)
                      AND lease.last_id >= ready.id)
              AND (?4 IS NULL OR topic NOT IN (SELECT value FROM json_each(?4)))
              AND (message_key IS NULL OR (
                   (?3 IS NULL OR substr(?3, abs(coalesce(key_hash, 0) % length(?3)) + 1, 1) = x'01')
                   AND NOT EXISTS (
                       SELECT 1
                         FROM pillarbox_outbox AS lane
                        WHERE lane.message_key = ready.message_key AND lane.id < ready.id
                          AND NOT ((lane.owner_token IS NULL OR (coalesce(lane.locked_until, 0) <= now AND lane.lost_lease_count < ?1))
                                   AND (lane.due_at IS NULL OR lane.due_at <= now)
                                   AND (lane.expires_at IS NULL OR lane.expires_at > now)
                                   AND (?3 IS NULL OR substr(?3, abs(coalesce(lane.key_hash, 0) % length(?3)) + 1, 1) = x'01')
                                   AND lane.id > ?5
                                   AND (?4 IS NULL OR lane.topic NOT IN (SELECT value FROM json_each(?4)))))
                   AND message_key NOT IN (SELECT message_key FROM held)
                   AND NOT EXISTS (
                       SELECT 1
                         FROM (SELECT lane.locked_until
                                 FROM pillarbox_outbox AS lane
                                WHERE lane.message_key = ready.message_key AND lane.id > ready.id
                                  AND (lane.owner_token IS NULL OR lane.locked_until > now)
                                ORDER BY lane.id
                                LIMIT 4) AS later
                        WHERE later.locked_until > now)
                   AND NOT EXISTS (
                       SELECT 1
                         FROM pillarbox_outbox_shelf AS earlier
                        WHERE earlier.message_key = ready.message_key AND earlier.id < ready.id AND earlier.state <> 'done'
                          AND CASE earlier.state WHEN 'dead' THEN ?2 ELSE earlier.settled_by IS NOT NULL END)))
       )
    OR EXISTS (
           SELECT 1
             FROM pillarbox_outbox_now CROSS JOIN pillarbox_outbox_shelf
            WHERE state = 'pending' AND wake_at <= now AND due_at <= now AND (expires_at IS NULL OR expires_at > now)
              AND (message_key IS NULL OR (?3 IS NULL OR substr(?3, abs(coalesce(key_hash, 0) % length(?3)) + 1, 1) = x'01'))
       )
    OR EXISTS (SELECT 1 FROM pillarbox_outbox_now CROSS JOIN pillarbox_outbox_lease WHERE locked_until <= now);
