-- Takes live rows in the order of the key. One writer at a time: no row can be taken between the choice and the update.
-- A lease that ran out is taken over and counted as lost, unless that was once too often: those are the reaper's.
UPDATE pillarbox_outbox
   SET owner_token = ?2,
       fence = ?3,
       locked_until = ?1 + ?4,
       attempts = min(attempts + 1, 2147483647),
       lost_lease_count = min(lost_lease_count + (owner_token IS NOT NULL), 2147483647)
 WHERE id IN (
           SELECT id
             FROM pillarbox_outbox
            WHERE (owner_token IS NULL OR (coalesce(locked_until, 0) <= ?1 AND lost_lease_count < ?6))
              AND (due_at IS NULL OR due_at <= ?1)
              AND (expires_at IS NULL OR expires_at > ?1)
            ORDER BY id
            LIMIT ?5
       )
RETURNING
    id, message_id, topic, payload, created_at, due_at, expires_at, attempts, lost_lease_count, priority, message_type,
    aggregate_type, aggregate_id, tenant_id, message_key, correlation_id, causation_id, content_type, headers,
    occurred_at, last_error;
