-- Counts by topic and state; reads every row of the hot table and every index entry of the shelf once.
SELECT `topic`, IF(`owner_token` IS NULL, 'pending', 'processing') AS `state`, COUNT(*) AS `count`
FROM `pillarbox_outbox`
GROUP BY 1, 2
UNION ALL
SELECT `topic`, CONCAT(`state`, '') AS `state`, COUNT(*) AS `count`
FROM `pillarbox_outbox_shelf`
GROUP BY 1, 2
