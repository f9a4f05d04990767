-- Takes the row for a consumer: done at once ($4 = 'done'), or under a lease ($4 = 'processing', owner $8, for $9). A row
-- that is done, queued or under somebody else's lease is left as it is but for the time it was last seen and its hash; the
-- consumer's own lease is $10 and $11. The fence $7 is drawn for this call, so the answer tells whether it took the row.
INSERT INTO pillarbox.inbox_ledger AS ledger (
    source, source_id, message_id, state, first_seen_at, last_seen_at, done_at, hash_algorithm, hash, fence, owner_token,
    locked_until)
SELECT
    $1::text, $2::text, $3::uuid, CASE WHEN $12 = 'pillarbox.inbox' THEN $4::text END, clock.now, clock.now,
    CASE WHEN $4 = 'done' THEN clock.now END, $5::text, $6::bytea, $7::bigint, $8::uuid,
    clock.now + $9::bigint * interval '1 microsecond'
FROM (SELECT clock_timestamp() AS now OFFSET 0) AS clock
ON CONFLICT (source, source_id) DO UPDATE SET
    last_seen_at = greatest(ledger.last_seen_at, excluded.last_seen_at),
    mismatch_count = least(ledger.mismatch_count::bigint + CASE
        WHEN ledger.hash_algorithm = excluded.hash_algorithm AND ledger.hash <> excluded.hash THEN 1 ELSE 0 END,
        2147483647),
    hash = CASE WHEN ledger.hash_algorithm IS NULL THEN excluded.hash ELSE ledger.hash END,
    hash_algorithm = coalesce(ledger.hash_algorithm, excluded.hash_algorithm),
    (state, done_at, fence, owner_token, locked_until) = (
        SELECT
            CASE WHEN free THEN excluded.state ELSE ledger.state END,
            CASE WHEN free THEN excluded.done_at ELSE ledger.done_at END,
            CASE WHEN free THEN excluded.fence ELSE ledger.fence END,
            CASE WHEN free THEN excluded.owner_token ELSE ledger.owner_token END,
            CASE WHEN free THEN excluded.locked_until ELSE ledger.locked_until END
        FROM (SELECT ledger.state <> 'done' AND NOT ledger.is_queued
            AND (ledger.locked_until IS NULL OR ledger.locked_until <= excluded.last_seen_at
                OR (ledger.owner_token = $10::uuid AND ledger.fence = $11::bigint)) AS free) AS row)
RETURNING message_id, fence = $7, state, is_queued, coalesce(hash_algorithm = $5 AND hash <> $6, false)
