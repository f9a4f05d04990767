-- Only what is dead; its place in the lane goes with it, unless it was replayed.
DELETE s, n FROM `pillarbox_outbox_shelf` AS s FORCE INDEX (PRIMARY)
LEFT JOIN `pillarbox_outbox_lane` AS n FORCE INDEX (PRIMARY)
    ON n.`id` = IF(s.`message_key` IS NULL, NULL, s.`id`) AND n.`place` <> 'live'
WHERE s.`id` IN (0 /*ids*/) AND s.`state` = 'dead'
