-- Acknowledged and not kept, or kept by the statement before. Only rows with a key are looked for in the lane.
DELETE l, n FROM `pillarbox_outbox` AS l FORCE INDEX (PRIMARY)
LEFT JOIN `pillarbox_outbox_lane` AS n FORCE INDEX (PRIMARY) ON n.`id` = IF(l.`message_key` IS NULL, NULL, l.`id`)
WHERE l.`id` IN (0 /*ids*/) AND l.`owner_token` = x'00000000000000000000000000000000' /*owner*/ AND (0 /*fences*/)
