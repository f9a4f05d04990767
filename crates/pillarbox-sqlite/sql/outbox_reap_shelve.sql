-- Rows without a running lease that must leave the live table: expired, leases lost too often, not due yet because a
-- foreign writer put them there, or, if ?7 says why, behind a dead one of their key. outbox_leave_live.sql does the second half, outbox_reap_release.sql the rest.
-- OR REPLACE: a shelved row of the same message_id can only exist beside a foreign writer's; the latest outcome counts.
INSERT OR REPLACE INTO pillarbox_outbox_shelf (
    id, message_id, state, wake_at, settled_at, settled_by, is_receipt, due_at, expires_at, attempts,
    lost_lease_count, priority, created_at, topic, message_type, aggregate_type, aggregate_id, tenant_id, message_key, key_hash,
    correlation_id, causation_id, content_type, headers, occurred_at, last_error, payload
)
SELECT id, message_id,
       iif(is_dead, 'dead', 'pending'),
       iif(is_dead, NULL, min(due_at, coalesce(expires_at, due_at))),
       iif(is_dead, ?1, NULL),
       NULL, 0, due_at, expires_at, attempts,
       min(lost_lease_count + (owner_token IS NOT NULL), 2147483647),
       priority, created_at, topic, message_type, aggregate_type, aggregate_id, tenant_id, message_key, key_hash,
       correlation_id, causation_id, content_type, headers, occurred_at,
       CASE WHEN is_expired THEN ?5 WHEN is_lost THEN ?6 WHEN is_parked THEN ?7 ELSE last_error END, payload
  FROM (SELECT *, is_expired OR is_lost OR is_parked AS is_dead
          FROM (SELECT *,
                       coalesce(expires_at <= ?1, 0) AS is_expired,
                       owner_token IS NOT NULL AND lost_lease_count >= ?4 AS is_lost,
                       ?7 IS NOT NULL AND message_key IS NOT NULL AND EXISTS (
                           SELECT 1 FROM pillarbox_outbox_shelf AS dead
                            WHERE dead.message_key = live.message_key AND dead.id < live.id
                              AND dead.state <> 'done' AND dead.state = 'dead') AS is_parked
                  FROM pillarbox_outbox AS live
                 WHERE id > ?2 AND id <= ?3 AND (owner_token IS NULL OR coalesce(locked_until, 0) <= ?1)))
 WHERE is_dead OR (owner_token IS NULL AND due_at > ?1)
RETURNING id, CASE WHEN state = 'pending' THEN 'waiting' WHEN last_error = ?5 THEN 'expired' WHEN last_error = ?7 THEN 'parked'
               ELSE 'lost' END;
