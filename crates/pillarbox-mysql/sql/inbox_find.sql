-- Everything about messages: the ledger's rows, and what the queue knows. The program repeats the condition.
SELECT
    l.`source`, l.`source_id`, l.`message_id`, l.`state`, l.`is_queued`,
    CASE WHEN q.`owner_token` IS NOT NULL AND q.`locked_until` > UTC_TIMESTAMP(6) THEN 'leased' WHEN q.`id` IS NOT NULL THEN 'free'
        WHEN s.`state` = 'pending' THEN 'free' ELSE s.`state` END,
    l.`hash_algorithm`, l.`hash`, l.`fence`, l.`first_seen_at`, l.`last_seen_at`, l.`mismatch_count`,
    COALESCE(q.`attempts`, s.`attempts`, 0), IF(q.`id` IS NULL, s.`due_at`, q.`due_at`),
    COALESCE(q.`last_error`, s.`last_error`, l.`last_error`), COALESCE(q.`topic`, s.`topic`)
FROM `pillarbox_inbox_ledger` AS l
LEFT JOIN `pillarbox_inbox` AS q ON q.`message_id` = l.`message_id`
LEFT JOIN `pillarbox_inbox_shelf` AS s ON s.`message_id` = l.`message_id`
WHERE (l.`source` = ? AND l.`source_id` = ?)
