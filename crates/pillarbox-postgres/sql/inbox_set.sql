-- Writes what was decided about a row that the queue does not have; whoever held a lease on it finds it gone.
UPDATE pillarbox.inbox_ledger
SET state = $3::text, is_queued = false, last_error = $4, owner_token = NULL, locked_until = NULL,
    done_at = CASE WHEN $3 = 'done' THEN clock_timestamp() END
WHERE source = $1 AND source_id = $2
