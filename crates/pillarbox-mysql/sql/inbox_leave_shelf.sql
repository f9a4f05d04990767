-- Takes messages off the queue's shelf, by their own ids. Those that are done have no place in the lane.
DELETE s, n FROM `pillarbox_inbox_shelf` AS s FORCE INDEX (`message_id`)
LEFT JOIN `pillarbox_inbox_lane` AS n FORCE INDEX (PRIMARY)
    ON n.`id` = IF(s.`message_key` IS NULL OR s.`state` = 'done', NULL, s.`id`)
WHERE s.`message_id` IN (0 /*messages*/)
