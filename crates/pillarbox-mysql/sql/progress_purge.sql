-- Results of receptors that are so old and whose message the queue has no more, oldest first, straight from the index, passing
-- over what another purge works on.
DELETE r
FROM (
    SELECT o.`message_id`, o.`receptor` FROM `pillarbox_outbox_receptor` AS o
    WHERE o.`changed_at` <= UTC_TIMESTAMP(6) - INTERVAL 0 /*keep*/ MICROSECOND
        AND NOT EXISTS (SELECT 1 FROM `pillarbox_outbox` AS l WHERE l.`message_id` = o.`message_id`)
        AND NOT EXISTS (SELECT 1 FROM `pillarbox_outbox_shelf` AS s WHERE s.`message_id` = o.`message_id`)
    ORDER BY o.`changed_at` LIMIT 1 /*limit*/ FOR UPDATE SKIP LOCKED
) AS p
STRAIGHT_JOIN `pillarbox_outbox_receptor` AS r ON r.`message_id` = p.`message_id` AND r.`receptor` = p.`receptor`
