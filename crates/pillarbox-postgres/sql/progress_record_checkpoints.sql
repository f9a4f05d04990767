-- Checkpoints, as columns. None moves backwards, and none that is done gives way at its position. Answers the rows that changed.
INSERT INTO pillarbox.outbox_checkpoint AS known (stream, perspective, position, message_id, state, error, changed_at)
SELECT stream, perspective, position, message_id, state, error, clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::uuid[], $5::text[], $6::text[])
    AS reached (stream, perspective, position, message_id, state, error)
ON CONFLICT (stream, perspective) DO UPDATE
SET position = excluded.position, message_id = excluded.message_id, state = excluded.state, error = excluded.error,
    changed_at = excluded.changed_at
WHERE excluded.position > known.position OR (excluded.position = known.position AND known.state <> 'done')
RETURNING stream, perspective
