-- Which dead messages a replay or delete means, lowest first. The program puts another state in the place of this one; a
-- receipt is nothing that could be replayed.
SELECT `id`
FROM `pillarbox_outbox_shelf`
WHERE `id` > ? AND `state` = 'dead' AND `is_receipt` = 0
    AND (TRUE /*only*/)
    AND (? IS NULL OR CAST(`topic` AS BINARY) = ?) AND (? IS NULL OR CAST(`correlation_id` AS BINARY) = ?)
    AND (? IS NULL OR INSTR(CAST(`last_error` AS BINARY), ?) > 0)
    AND (? IS NULL OR `settled_at` < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND)
    AND (? IS NULL OR `settled_at` > UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND)
ORDER BY `id` LIMIT ?
