-- How far a perspective has come in a stream.
SELECT position, message_id, state, substr(error, 1, 4000), changed_at
  FROM pillarbox_outbox_checkpoint
 WHERE stream = ?1 AND perspective = ?2;
