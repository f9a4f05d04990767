-- The second half of outbox_lease_spread.sql.
DELETE FROM pillarbox_outbox_lease
 WHERE (?1 IS NULL OR fence IN (SELECT value FROM json_each(?1)))
   AND (?2 IS NULL OR locked_until <= ?2)
   AND (?3 IS NULL OR first_id IN (SELECT value FROM json_each(?3)));
