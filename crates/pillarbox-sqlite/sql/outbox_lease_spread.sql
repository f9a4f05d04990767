-- Writes leases of stretches into their rows: those with the fences in the JSON ?1, unless it is NULL, that ran out by ?2, unless that is,
-- and whose first rows are in the JSON ?3, unless that is. From then on they are like any other lease; outbox_lease_drop.sql does the second half.
UPDATE pillarbox_outbox AS live
   SET owner_token = lease.owner_token,
       fence = lease.fence,
       locked_until = lease.locked_until,
       attempts = min(attempts + 1, 2147483647)
  FROM pillarbox_outbox_lease AS lease
 WHERE live.id BETWEEN lease.first_id AND lease.last_id AND live.owner_token IS NULL
   AND (?1 IS NULL OR lease.fence IN (SELECT value FROM json_each(?1)))
   AND (?2 IS NULL OR lease.locked_until <= ?2)
   AND (?3 IS NULL OR lease.first_id IN (SELECT value FROM json_each(?3)));
