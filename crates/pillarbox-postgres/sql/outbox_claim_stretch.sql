-- The messages of stretches that were just leased. The program writes out between which rows, and how many: planned for these, it is a walk
-- along the rows, and nothing is kept once more, as by a function. One that is missing was locked before the lease could be seen. Who
-- locked it lets it go, or has it: the program asks again, and then locks itself, because a row does not show that its locker is gone. The
-- columns are those of outbox_claim.sql; the attempts of the rows themselves do not count this claim yet.
SELECT
    id, message_id, topic, payload, created_at, least(attempts, 2147483646) + 1, lost_lease_count, priority, due_at, expires_at,
    occurred_at, message_type, aggregate_type, aggregate_id, tenant_id, message_key, correlation_id, causation_id, content_type,
    headers::text, last_error
FROM pillarbox.outbox
WHERE id BETWEEN -1 AND 1 AND (id BETWEEN 0 AND 0) AND owner_token IS NULL AND fence = 0 AND xmax = '0'::xid
ORDER BY id
LIMIT 0
