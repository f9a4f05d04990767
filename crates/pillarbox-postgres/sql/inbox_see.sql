-- Deliveries: writes the rows that are new, and moves on the time that others were last seen. The hash on record is kept; one of
-- another algorithm is not comparable. The names come sorted, so that two batches cannot deadlock.
INSERT INTO pillarbox.inbox_ledger AS ledger (
    source, source_id, message_id, hash_algorithm, hash, state, is_queued, first_seen_at, last_seen_at)
SELECT input.*, CASE WHEN $8 = 'pillarbox.inbox' THEN $6::text END, $7::boolean, clock.now, clock.now
FROM unnest($1::text[], $2::text[], $3::uuid[], $4::text[], $5::bytea[]) AS input,
    (SELECT clock_timestamp() AS now OFFSET 0) AS clock
ON CONFLICT (source, source_id) DO UPDATE SET
    last_seen_at = greatest(ledger.last_seen_at, excluded.last_seen_at),
    mismatch_count = least(ledger.mismatch_count::bigint + CASE
        WHEN ledger.hash_algorithm = excluded.hash_algorithm AND ledger.hash <> excluded.hash THEN 1 ELSE 0 END,
        2147483647),
    hash = CASE WHEN ledger.hash_algorithm IS NULL THEN excluded.hash ELSE ledger.hash END,
    hash_algorithm = coalesce(ledger.hash_algorithm, excluded.hash_algorithm)
RETURNING source, source_id, message_id, state, is_queued, hash_algorithm, hash
