-- Acknowledged rows are kept on the shelf, whole or as a receipt; outbox_settle_remove.sql takes them off the live table.
-- ?3 maps ids to fences. CROSS JOIN fixes the order: the list drives, each row is found by its key.
-- OR REPLACE: a shelved row of the same message_id can only exist beside a foreign writer's; the latest outcome counts.
INSERT OR REPLACE INTO pillarbox_outbox_shelf (
    id, message_id, state, wake_at, settled_at, settled_by, is_receipt, due_at, expires_at, attempts,
    lost_lease_count, priority, created_at, topic, message_type, aggregate_type, aggregate_id, tenant_id, message_key, key_hash,
    correlation_id, causation_id, content_type, headers, occurred_at, last_error, payload
)
SELECT l.id, message_id, 'done', NULL, ?1, owner_token, ?4, due_at, expires_at, attempts,
       lost_lease_count, priority, created_at, topic, message_type,
       iif(?4, NULL, aggregate_type), iif(?4, NULL, aggregate_id), iif(?4, NULL, tenant_id), iif(?4, NULL, message_key),
       iif(?4, NULL, key_hash), iif(?4, NULL, correlation_id), iif(?4, NULL, causation_id), iif(?4, NULL, content_type), iif(?4, NULL, headers),
       iif(?4, NULL, occurred_at), iif(?4, NULL, last_error), iif(?4, x'', payload)
  FROM json_each(?3) AS s CROSS JOIN pillarbox_outbox AS l
 WHERE l.id = CAST(s.key AS INTEGER) AND l.fence = s.value AND l.owner_token = ?2;
