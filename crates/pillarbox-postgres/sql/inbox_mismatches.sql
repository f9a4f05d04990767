-- A page of messages that came with different contents, after the name $1, $2; the partial index holds no others.
SELECT
    ledger.source, ledger.source_id, ledger.message_id, ledger.state, ledger.is_queued,
    CASE WHEN live.owner_token IS NOT NULL THEN 'leased' WHEN live.id IS NOT NULL THEN 'free'
        WHEN shelf.state = 'pending' THEN 'free' ELSE shelf.state END,
    ledger.first_seen_at, ledger.last_seen_at, ledger.hash_algorithm, ledger.hash, ledger.mismatch_count,
    coalesce(live.attempts, shelf.attempts, 0), CASE WHEN live.id IS NULL THEN shelf.due_at ELSE live.due_at END,
    coalesce(live.last_error, shelf.last_error, ledger.last_error), coalesce(live.topic, shelf.topic)
FROM pillarbox.inbox_ledger AS ledger
LEFT JOIN pillarbox.inbox AS live ON live.message_id = ledger.message_id
LEFT JOIN pillarbox.inbox_shelf AS shelf ON shelf.message_id = ledger.message_id
WHERE ledger.mismatch_count > 0 AND (ledger.source, ledger.source_id) > ($1, $2)
ORDER BY ledger.source, ledger.source_id
LIMIT $3
