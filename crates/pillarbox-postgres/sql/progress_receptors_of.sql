-- What receptors have made of a message. Others may have written longer texts than we do; they are read as far as ours may be.
SELECT left(receptor, 255), state, left(error, 4000), attempts, changed_at
FROM pillarbox.outbox_receptor
WHERE message_id = $1
ORDER BY receptor
LIMIT $2
