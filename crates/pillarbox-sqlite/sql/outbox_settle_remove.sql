-- The guard itself: only rows still under the very claim (owner and fence) go, and only they are answered.
-- ?2 maps ids to fences.
DELETE FROM pillarbox_outbox
 WHERE id IN (
           SELECT l.id
             FROM json_each(?2) AS s CROSS JOIN pillarbox_outbox AS l
            WHERE l.id = CAST(s.key AS INTEGER) AND l.fence = s.value AND l.owner_token = ?1
       )
RETURNING id;
