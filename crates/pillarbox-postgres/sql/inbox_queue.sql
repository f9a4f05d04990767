-- These messages stand in the queue, with the contents of these hashes; whoever held a consumer's lease on one finds that gone.
UPDATE pillarbox.inbox_ledger
SET state = 'processing', is_queued = true, last_error = NULL, owner_token = NULL, locked_until = NULL, done_at = NULL,
    hash_algorithm = queued.algorithm, hash = queued.content
FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[]) AS queued (name, id, algorithm, content)
WHERE source = queued.name AND source_id = queued.id
