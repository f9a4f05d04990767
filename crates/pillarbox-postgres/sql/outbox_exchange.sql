-- Settles one batch ($7 to $12) and claims the next one ($1 to $6, $13 to $16): one round trip, one transaction, the functions of
-- migrations/0002_outbox_routines.sql one after the other. The first row is no message: its id is 0, and its headers are what
-- outbox_settle answers. The claim comes after it, because the parts of a UNION ALL run in their order, and it sees what was
-- settled: a function looks at its own moment. A function around the two would have to keep all rows once more.
WITH holder AS MATERIALIZED (SELECT CASE WHEN $17 = 'pillarbox.outbox' THEN $1::uuid END AS owner),
settled AS MATERIALIZED (
    SELECT holder.owner, to_jsonb(pillarbox.outbox_settle($7, $8, $9, $10, $11, holder.owner, $12)) AS answer FROM holder
)
SELECT
    0::bigint, NULL::uuid, NULL::text, NULL::bytea, NULL::timestamptz, 0, 0, 0::smallint, NULL::timestamptz, NULL::timestamptz,
    NULL::timestamptz, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text,
    answer::text, NULL::text
FROM settled
UNION ALL
SELECT
    claimed.id, claimed.message_id, claimed.topic, claimed.payload, claimed.created_at, claimed.attempts,
    claimed.lost_lease_count, claimed.priority, claimed.due_at, claimed.expires_at, claimed.occurred_at, claimed.message_type,
    claimed.aggregate_type, claimed.aggregate_id, claimed.tenant_id, claimed.message_key, claimed.correlation_id,
    claimed.causation_id, claimed.content_type, claimed.headers::text, claimed.last_error
FROM settled
CROSS JOIN LATERAL pillarbox.outbox_claim(settled.owner, $2, $3, $4, $5, $6, $13, $14, $15, $16) AS claimed
