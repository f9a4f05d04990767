-- Rows without a running lease that must leave the live table: expired, leases lost too often, or not due yet because a
-- foreign writer put them there. outbox_leave_live.sql does the second half, outbox_reap_release.sql the rest.
-- OR REPLACE: a shelved row of the same message_id can only exist beside a foreign writer's; the latest outcome counts.
INSERT OR REPLACE INTO pillarbox_outbox_shelf (
    id, message_id, state, wake_at, settled_at, settled_by, is_receipt, due_at, expires_at, attempts,
    lost_lease_count, priority, created_at, topic, message_type, aggregate_type, aggregate_id, tenant_id, message_key,
    correlation_id, causation_id, content_type, headers, occurred_at, last_error, payload
)
SELECT id, message_id,
       iif(is_expired OR is_lost, 'dead', 'pending'),
       iif(is_expired OR is_lost, NULL, min(due_at, coalesce(expires_at, due_at))),
       iif(is_expired OR is_lost, ?1, NULL),
       NULL, 0, due_at, expires_at, attempts,
       min(lost_lease_count + (owner_token IS NOT NULL), 2147483647),
       priority, created_at, topic, message_type, aggregate_type, aggregate_id, tenant_id, message_key,
       correlation_id, causation_id, content_type, headers, occurred_at,
       CASE WHEN is_expired THEN ?5 WHEN is_lost THEN ?6 ELSE last_error END, payload
  FROM (SELECT *,
               coalesce(expires_at <= ?1, 0) AS is_expired,
               owner_token IS NOT NULL AND lost_lease_count >= ?4 AS is_lost
          FROM pillarbox_outbox
         WHERE id > ?2 AND id <= ?3 AND (owner_token IS NULL OR coalesce(locked_until, 0) <= ?1))
 WHERE is_expired OR is_lost OR (owner_token IS NULL AND due_at > ?1)
RETURNING id, CASE WHEN state = 'pending' THEN 'waiting' WHEN last_error = ?5 THEN 'expired' ELSE 'lost' END;
