-- Gives back stretches of which nothing was handed out.
DELETE FROM pillarbox.outbox_lease WHERE owner_token = $1 AND fence = $2
RETURNING 1
