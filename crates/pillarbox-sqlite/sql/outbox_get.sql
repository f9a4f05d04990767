-- One message by its row or by its own id, wherever it stands; the other parameter is NULL.
SELECT
    id, message_id, topic, payload, created_at, due_at, expires_at, attempts, lost_lease_count, priority, message_type,
    aggregate_type, aggregate_id, tenant_id, message_key, correlation_id, causation_id, content_type, headers,
    occurred_at, last_error,
    CASE WHEN owner_token IS NULL THEN 'pending' ELSE 'processing' END, owner_token, locked_until,
    NULL AS settled_at, NULL AS settled_by, 0 AS is_receipt
  FROM pillarbox_outbox_live
 WHERE id = ?1 OR message_id = ?2
 UNION ALL
SELECT
    id, message_id, topic, payload, created_at, due_at, expires_at, attempts, lost_lease_count, priority, message_type,
    aggregate_type, aggregate_id, tenant_id, message_key, correlation_id, causation_id, content_type, headers,
    occurred_at, last_error,
    state, NULL, NULL, settled_at, settled_by, is_receipt
  FROM pillarbox_outbox_shelf
 WHERE id = ?1 OR message_id = ?2
 LIMIT 1;
