-- A message of the queue that is not done lies dead on the shelf, for this reason and with its payload. Answers nothing when
-- it moved in the meantime.
WITH gone AS (
    DELETE FROM pillarbox.inbox WHERE message_id = $1 RETURNING *
),
moved AS (
    INSERT INTO pillarbox.inbox_shelf (
        id, message_id, state, created_at, due_at, expires_at, settled_at, occurred_at, attempts, lost_lease_count,
        priority, topic, message_type, aggregate_type, aggregate_id, tenant_id, message_key, key_hash, correlation_id,
        causation_id, content_type, headers, last_error, payload)
    SELECT
        id, message_id, 'dead', created_at, due_at, expires_at, clock_timestamp(), occurred_at, attempts,
        lost_lease_count, priority, topic, message_type, aggregate_type, aggregate_id, tenant_id, message_key, key_hash,
        correlation_id, causation_id, content_type, headers, coalesce($2, last_error), payload
    FROM gone
    RETURNING id
),
buried AS (
    UPDATE pillarbox.inbox_shelf
    SET state = 'dead', wake_at = NULL, settled_at = clock_timestamp(), settled_by = NULL,
        last_error = coalesce($2, last_error)
    WHERE message_id = $1 AND state <> 'done'
    RETURNING id
)
SELECT id FROM moved UNION SELECT id FROM buried
