-- What receptors have made of a message. Others may have written longer texts than we do; they are read as far as ours may be.
SELECT substr(receptor, 1, 255), state, substr(error, 1, 4000), attempts, changed_at
  FROM pillarbox_outbox_receptor
 WHERE message_id = ?1
 ORDER BY receptor
 LIMIT ?2;
