-- Takes back new rows: their messages are on the shelf already.
DELETE l, n FROM `pillarbox_outbox` AS l FORCE INDEX (PRIMARY)
LEFT JOIN `pillarbox_outbox_lane` AS n FORCE INDEX (PRIMARY) ON n.`id` = IF(l.`message_key` IS NULL, NULL, l.`id`)
WHERE l.`id` IN (0 /*ids*/)
