-- How far a perspective has come in a stream.
SELECT position, message_id, state, left(error, 4000), changed_at
FROM pillarbox.outbox_checkpoint
WHERE stream = $1 AND perspective = $2
