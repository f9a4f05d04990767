-- Claims whole messages, or leases stretches of them, whose rows have no topic; see the function in
-- migrations/0002_outbox_routines.sql.
SELECT
    id, message_id, topic, payload, created_at, attempts, lost_lease_count, priority, due_at, expires_at, occurred_at,
    message_type, aggregate_type, aggregate_id, tenant_id, message_key, correlation_id, causation_id, content_type,
    headers::text, last_error
FROM pillarbox.outbox_claim(
    CASE WHEN $11 = 'pillarbox.outbox' THEN $1::uuid END, $2, $3, $4, $5, $6, $7, $8, $9, $10)
