-- Writes what was decided about these rows; whoever held a lease on one finds it gone.
UPDATE pillarbox.inbox_ledger
SET state = $3::text, is_queued = $4, last_error = $5, owner_token = NULL, locked_until = NULL,
    done_at = CASE WHEN $3 = 'done' THEN clock_timestamp() END
FROM unnest($1::text[], $2::text[]) AS named (name, id)
WHERE source = named.name AND source_id = named.id
