-- Keys behind a message that waits for its next attempt or is dead, with that message: the earliest of its key that stands in
-- the way. Keys of done messages are many; the index of the states does not meet them. The counts stand outside of the derived
-- table: MariaDB forgets its columns there when the statement runs a second time.
SELECT h.`message_key`, h.`id`, h.`state`, h.`last_error`, IF(h.`state` = 'pending', h.`due_at`, NULL) AS `due_at`,
    (
        SELECT COUNT(*) FROM `pillarbox_outbox_lane` AS n FORCE INDEX (`lane`)
        STRAIGHT_JOIN `pillarbox_outbox` AS l FORCE INDEX (PRIMARY) ON l.`id` = n.`id`
        WHERE n.`message_key` = h.`message_key` AND n.`place` = 'live' AND n.`id` > h.`id`
    ) + (
        SELECT COUNT(*) FROM `pillarbox_outbox_lane` AS n FORCE INDEX (`lane`)
        STRAIGHT_JOIN `pillarbox_outbox_shelf` AS w FORCE INDEX (PRIMARY) ON w.`id` = n.`id`
        WHERE n.`message_key` = h.`message_key` AND n.`place` = 'waiting' AND n.`id` > h.`id` AND w.`state` = 'pending'
    ) AS `waiting_count`
FROM (
    SELECT MIN(s.`id`) AS `id`
    FROM `pillarbox_outbox_shelf` AS s FORCE INDEX (`state`)
    WHERE s.`state` IN ('pending', 'dead') AND (s.`state` = 'dead' OR s.`settled_by` IS NOT NULL)
        AND s.`message_key` IS NOT NULL
    GROUP BY s.`message_key`
) AS f
STRAIGHT_JOIN `pillarbox_outbox_shelf` AS h FORCE INDEX (PRIMARY) ON h.`id` = f.`id`
HAVING `waiting_count` > 0
ORDER BY h.`id` LIMIT ?
