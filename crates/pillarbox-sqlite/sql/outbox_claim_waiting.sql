-- Rows whose time has come move from the shelf into the live table and are leased on the way; they go first, so that a
-- long backlog cannot starve a retry. outbox_leave_shelf.sql does the second half.
-- One with a key goes when nothing of its key is held or comes before it, past what came back to the key. ?7 says whether a dead message does, ?8
-- which partitions are served, as in outbox_claim.sql.
-- A live row of the same message_id can only come from a foreign writer: then the shelved one waits behind it.
INSERT INTO pillarbox_outbox (
    id, message_id, owner_token, locked_until, fence, due_at, expires_at, attempts, lost_lease_count, priority,
    created_at, topic, message_type, aggregate_type, aggregate_id, tenant_id, message_key, key_hash, correlation_id, causation_id,
    content_type, headers, occurred_at, last_error, payload
)
SELECT id, message_id, ?2, ?1 + ?4, ?3, due_at, expires_at, min(attempts + 1, 2147483647), lost_lease_count, priority,
       created_at, topic, message_type, aggregate_type, aggregate_id, tenant_id, message_key, key_hash, correlation_id,
       causation_id, content_type, headers, occurred_at, last_error, payload
  FROM pillarbox_outbox_shelf AS s
 WHERE state = 'pending' AND wake_at <= ?1 AND due_at <= ?1 AND (expires_at IS NULL OR expires_at > ?1)
   AND NOT EXISTS (SELECT 1 FROM pillarbox_outbox AS l WHERE l.message_id = s.message_id)
   AND (message_key IS NULL OR (
        (?8 IS NULL OR substr(?8, abs(coalesce(key_hash, 0) % length(?8)) + 1, 1) = x'01')
        AND NOT EXISTS (
            SELECT 1
              FROM (SELECT lane.id, lane.locked_until
                      FROM pillarbox_outbox AS lane
                     WHERE lane.message_key = s.message_key
                       AND (lane.id < s.id OR lane.locked_until > ?1 OR (lane.owner_token IS NULL AND lane.fence >= 0))
                     ORDER BY lane.id
                     LIMIT 4) AS near
             WHERE near.id < s.id OR near.locked_until > ?1)
        AND NOT EXISTS (
            SELECT 1
              FROM pillarbox_outbox_shelf AS earlier
             WHERE earlier.message_key = s.message_key AND earlier.id < s.id AND earlier.state <> 'done'
               AND CASE earlier.state WHEN 'dead' THEN ?7 ELSE earlier.settled_by IS NOT NULL END)))
 ORDER BY wake_at, id
 LIMIT ?5
RETURNING
    id, message_id, topic, payload, created_at, attempts, content_type,
    CASE WHEN coalesce(due_at, expires_at, message_type, aggregate_type, aggregate_id, tenant_id, message_key, correlation_id,
                       causation_id, headers, occurred_at, last_error) IS NOT NULL OR lost_lease_count <> 0 OR priority <> 0
         THEN json_array(due_at, expires_at, lost_lease_count, priority, message_type, aggregate_type, aggregate_id, tenant_id,
                         message_key, correlation_id, causation_id, headers, occurred_at, last_error) END;
