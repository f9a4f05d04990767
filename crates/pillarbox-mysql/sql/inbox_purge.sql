-- Done rows that were last seen so long ago, oldest first, straight from the index, passing over what somebody is at; run
-- once for each of two states. A queued message is done here once the queue has forgotten it: its receipt is kept for as long
-- after it was settled.
DELETE l
FROM (
    SELECT o.`source`, o.`source_id` FROM `pillarbox_inbox_ledger` AS o
    WHERE o.`state` = 'done' /*state*/ AND (o.`state` = 'done' OR o.`is_queued`)
    AND o.`last_seen_at` <= UTC_TIMESTAMP(6) - INTERVAL 0 /*keep*/ MICROSECOND
    AND NOT EXISTS (SELECT 1 FROM `pillarbox_inbox` AS q WHERE q.`message_id` = o.`message_id`)
    AND NOT EXISTS (SELECT 1 FROM `pillarbox_inbox_shelf` AS s WHERE s.`message_id` = o.`message_id`)
    ORDER BY o.`last_seen_at` LIMIT 1 /*limit*/ FOR UPDATE SKIP LOCKED
) AS p
STRAIGHT_JOIN `pillarbox_inbox_ledger` AS l ON l.`source` = p.`source` AND l.`source_id` = p.`source_id`
