-- Still dead, and ours from here on.
SELECT `id` AS `applied`
FROM `pillarbox_outbox_shelf` FORCE INDEX (PRIMARY)
WHERE `id` IN (0 /*ids*/) AND `state` = 'dead'
ORDER BY `id`
FOR UPDATE
