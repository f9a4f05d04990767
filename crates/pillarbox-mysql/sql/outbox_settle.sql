-- Locks the rows that are still under the named claims, in the order of the primary key, and answers them.
SELECT l.`id` AS `applied`
FROM `pillarbox_outbox` AS l FORCE INDEX (PRIMARY)
WHERE l.`id` IN (0 /*ids*/) AND l.`owner_token` = x'00000000000000000000000000000000' /*owner*/ AND (0 /*fences*/)
ORDER BY l.`id`
FOR UPDATE
