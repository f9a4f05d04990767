-- The same guard for rows of one claim, which most calls settle: they have one fence, and need no map.
DELETE FROM pillarbox_outbox
 WHERE id IN (SELECT value FROM json_each(?2)) AND fence = ?3 AND owner_token = ?1
RETURNING id;
