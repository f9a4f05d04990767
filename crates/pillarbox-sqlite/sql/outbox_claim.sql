-- Takes live rows in the order of the key. One writer at a time: no row can be taken between the choice and the update.
-- A lease that ran out is taken over and counted as lost, unless that was once too often: those are the reaper's.
-- A row with a message key goes when all before it in its key go too, none after it is held, and nothing before it waits on
-- the shelf; ?7 says whether a dead one there counts. A later one can be held when an earlier one was committed late: a few are
-- looked at. Or when many were given back or replayed: so for the keys of such rows, and once for each, the look goes past them. ?8 has a byte for each partition, 1 where it is served, or is NULL; a key without a hash is partition 0's.
-- ?9 is a JSON array of topics that stay where they are, or NULL. Only rows above ?10 are taken, and none that is leased
-- with its stretch.
-- The driver copies every value of every row, NULLs too: what most messages do not have comes as one value, or as none.
WITH held (message_key) AS MATERIALIZED (
    SELECT back.message_key
      FROM (SELECT DISTINCT message_key
              FROM pillarbox_outbox INDEXED BY pillarbox_outbox_back
             WHERE fence = -1 AND message_key IS NOT NULL) AS back
     WHERE EXISTS (
               SELECT 1
                 FROM (SELECT lane.locked_until
                         FROM pillarbox_outbox AS lane
                        WHERE lane.message_key = back.message_key
                          AND (lane.locked_until > ?1 OR (lane.owner_token IS NULL AND lane.fence >= 0))
                        ORDER BY lane.id
                        LIMIT 4) AS next
                WHERE next.locked_until > ?1)
)
UPDATE pillarbox_outbox
   SET owner_token = ?2,
       fence = ?3,
       locked_until = ?1 + ?4,
       attempts = min(attempts + 1, 2147483647),
       lost_lease_count = min(lost_lease_count + (owner_token IS NOT NULL), 2147483647)
 WHERE id IN (
           SELECT id
             FROM pillarbox_outbox AS ready
            WHERE (owner_token IS NULL OR (coalesce(locked_until, 0) <= ?1 AND lost_lease_count < ?6))
              AND (due_at IS NULL OR due_at <= ?1)
              AND (expires_at IS NULL OR expires_at > ?1)
              AND id > ?10
              AND NOT EXISTS (
                   SELECT 1
                     FROM pillarbox_outbox_lease AS lease
                    WHERE lease.first_id = (SELECT max(first_id) FROM pillarbox_outbox_lease WHERE first_id <= ready.id)
                      AND lease.last_id >= ready.id)
              AND (?9 IS NULL OR topic NOT IN (SELECT value FROM json_each(?9)))
              AND (message_key IS NULL OR (
                   (?8 IS NULL OR substr(?8, abs(coalesce(key_hash, 0) % length(?8)) + 1, 1) = x'01')
                   AND NOT EXISTS (
                       SELECT 1
                         FROM pillarbox_outbox AS lane
                        WHERE lane.message_key = ready.message_key AND lane.id < ready.id
                          AND NOT ((lane.owner_token IS NULL OR (coalesce(lane.locked_until, 0) <= ?1 AND lane.lost_lease_count < ?6))
                                   AND (lane.due_at IS NULL OR lane.due_at <= ?1)
                                   AND (lane.expires_at IS NULL OR lane.expires_at > ?1)
                                   AND (?8 IS NULL OR substr(?8, abs(coalesce(lane.key_hash, 0) % length(?8)) + 1, 1) = x'01')
                                   AND lane.id > ?10
                                   AND (?9 IS NULL OR lane.topic NOT IN (SELECT value FROM json_each(?9)))))
                   AND message_key NOT IN (SELECT message_key FROM held)
                   AND NOT EXISTS (
                       SELECT 1
                         FROM (SELECT lane.locked_until
                                 FROM pillarbox_outbox AS lane
                                WHERE lane.message_key = ready.message_key AND lane.id > ready.id
                                  AND (lane.owner_token IS NULL OR lane.locked_until > ?1)
                                ORDER BY lane.id
                                LIMIT 4) AS later
                        WHERE later.locked_until > ?1)
                   AND NOT EXISTS (
                       SELECT 1
                         FROM pillarbox_outbox_shelf AS earlier
                        WHERE earlier.message_key = ready.message_key AND earlier.id < ready.id AND earlier.state <> 'done'
                          AND CASE earlier.state WHEN 'dead' THEN ?7 ELSE earlier.settled_by IS NOT NULL END)))
            ORDER BY id
            LIMIT ?5
       )
RETURNING
    id, message_id, topic, payload, created_at, attempts, content_type,
    CASE WHEN coalesce(due_at, expires_at, message_type, aggregate_type, aggregate_id, tenant_id, message_key, correlation_id,
                       causation_id, headers, occurred_at, last_error) IS NOT NULL OR lost_lease_count <> 0 OR priority <> 0
         THEN json_array(due_at, expires_at, lost_lease_count, priority, message_type, aggregate_type, aggregate_id, tenant_id,
                         message_key, correlation_id, causation_id, headers, occurred_at, last_error) END;
