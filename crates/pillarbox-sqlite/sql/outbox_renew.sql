-- Guarded like a settlement; a lease that ran out and was not taken over is renewed all the same. ?3 maps ids to fences.
UPDATE pillarbox_outbox AS l
   SET locked_until = ?1 + ?4
  FROM json_each(?3) AS s
 WHERE l.id = CAST(s.key AS INTEGER) AND l.fence = s.value AND l.owner_token = ?2
RETURNING id;
