-- Takes messages out of the queue, by their own ids.
DELETE l, n FROM `pillarbox_inbox` AS l FORCE INDEX (`message_id`)
LEFT JOIN `pillarbox_inbox_lane` AS n FORCE INDEX (PRIMARY) ON n.`id` = IF(l.`message_key` IS NULL, NULL, l.`id`)
WHERE l.`message_id` IN (0 /*messages*/)
