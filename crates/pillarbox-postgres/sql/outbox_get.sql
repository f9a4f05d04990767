-- One message by row ($1) or by its own id ($2), wherever it stands.
SELECT
    id, message_id, topic, payload, created_at, attempts, lost_lease_count, priority, due_at, expires_at, occurred_at,
    message_type, aggregate_type, aggregate_id, tenant_id, message_key, correlation_id, causation_id, content_type,
    headers::text, last_error,
    CASE WHEN owner_token IS NULL THEN 'pending' ELSE 'processing' END AS state,
    owner_token, locked_until, NULL::timestamptz AS settled_at, NULL::uuid AS settled_by, false AS is_receipt
FROM pillarbox.outbox_live
WHERE id = $1 OR message_id = $2
UNION ALL
SELECT
    id, message_id, topic, payload, created_at, attempts, lost_lease_count, priority, due_at, expires_at, occurred_at,
    message_type, aggregate_type, aggregate_id, tenant_id, message_key, correlation_id, causation_id, content_type,
    headers::text, last_error,
    state, NULL::uuid AS owner_token, NULL::timestamptz AS locked_until, settled_at, settled_by, is_receipt
FROM pillarbox.outbox_shelf
WHERE id = $1 OR message_id = $2
