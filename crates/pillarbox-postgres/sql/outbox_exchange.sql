-- Settles and claims at once; see the function in migrations/0002_outbox_routines.sql. The first row is no message: its
-- headers are what outbox_settle answers.
SELECT
    id, message_id, topic, payload, created_at, attempts, lost_lease_count, priority, due_at, expires_at, occurred_at,
    message_type, aggregate_type, aggregate_id, tenant_id, message_key, correlation_id, causation_id, content_type,
    headers::text, last_error
FROM pillarbox.outbox_exchange(
    CASE WHEN $16 = 'pillarbox.outbox' THEN $1::uuid END, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
