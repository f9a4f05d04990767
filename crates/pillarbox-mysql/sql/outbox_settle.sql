-- Locks the rows that are still under the named claims, in the order of the primary key, and answers them.
SELECT `id` AS `applied`
FROM `pillarbox_outbox` FORCE INDEX (PRIMARY)
WHERE `id` IN (0 /*ids*/) AND `owner_token` = x'00000000000000000000000000000000' /*owner*/ AND (0 /*fences*/)
ORDER BY `id`
FOR UPDATE
