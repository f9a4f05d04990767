-- Makes leases last for $4 microseconds from now. Guarded like a settlement; no indexed column changes, so it stays HOT.
UPDATE pillarbox.outbox AS live
SET locked_until = clock_timestamp() + $4 * interval '1 microsecond'
FROM unnest($1::bigint[], $2::bigint[]) AS held (id, fence)
WHERE live.id = held.id AND live.fence = held.fence AND live.owner_token = $3
RETURNING live.id
