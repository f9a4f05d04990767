-- The same as outbox_settle_done.sql for acknowledged rows of a stretch, from ?3 to ?5, by owner ?2.
INSERT OR REPLACE INTO pillarbox_outbox_shelf (
    id, message_id, state, wake_at, settled_at, settled_by, is_receipt, due_at, expires_at, attempts,
    lost_lease_count, priority, created_at, topic, message_type, aggregate_type, aggregate_id, tenant_id, message_key, key_hash,
    correlation_id, causation_id, content_type, headers, occurred_at, last_error, payload
)
SELECT id, message_id, 'done', NULL, ?1, ?2, ?4, due_at, expires_at,
       min(attempts + 1, 2147483647),
       lost_lease_count, priority, created_at, topic, message_type,
       iif(?4, NULL, aggregate_type), iif(?4, NULL, aggregate_id), iif(?4, NULL, tenant_id), iif(?4, NULL, message_key),
       iif(?4, NULL, key_hash), iif(?4, NULL, correlation_id), iif(?4, NULL, causation_id), iif(?4, NULL, content_type), iif(?4, NULL, headers),
       iif(?4, NULL, occurred_at), iif(?4, NULL, last_error), iif(?4, x'', payload)
  FROM pillarbox_outbox
 WHERE id BETWEEN ?3 AND ?5 AND owner_token IS NULL;
