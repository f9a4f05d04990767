-- Results of receptors, as columns. What is done stays done. Answers the rows that changed.
INSERT INTO pillarbox.outbox_receptor AS known (message_id, receptor, state, error, attempts, changed_at)
SELECT message_id, receptor, state, error, 1, clock_timestamp()
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) AS result (message_id, receptor, state, error)
ON CONFLICT (message_id, receptor) DO UPDATE
SET state = excluded.state, error = excluded.error, attempts = least(known.attempts, 2147483646) + 1,
    changed_at = excluded.changed_at
WHERE known.state <> 'done'
RETURNING message_id, receptor
