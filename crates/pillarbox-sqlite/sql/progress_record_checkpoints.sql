-- Checkpoints, as a JSON array of [stream, perspective, position, message id in hex, state, error]. None moves backwards, and
-- none that is done gives way at its position. Answers the rows that changed.
INSERT INTO pillarbox_outbox_checkpoint (stream, perspective, position, message_id, state, error, changed_at)
SELECT value ->> 0, value ->> 1, value ->> 2, unhex(value ->> 3), value ->> 4, value ->> 5, ?1 FROM json_each(?2) WHERE true
ON CONFLICT (stream, perspective) DO UPDATE
   SET position = excluded.position, message_id = excluded.message_id, state = excluded.state, error = excluded.error,
       changed_at = excluded.changed_at
 WHERE excluded.position > pillarbox_outbox_checkpoint.position
    OR (excluded.position = pillarbox_outbox_checkpoint.position AND pillarbox_outbox_checkpoint.state <> 'done')
RETURNING stream, perspective;
