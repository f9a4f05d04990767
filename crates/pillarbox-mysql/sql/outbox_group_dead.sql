-- Counts dead messages by topic and, if the first value says so, by their last error, the largest groups first.
SELECT `topic`, IF(?, `last_error`, NULL) AS `error`, COUNT(*) AS `count`
FROM `pillarbox_outbox_shelf`
WHERE `state` = 'dead'
    AND (TRUE /*only*/)
    AND (? IS NULL OR CAST(`topic` AS BINARY) = ?) AND (? IS NULL OR CAST(`correlation_id` AS BINARY) = ?)
    AND (? IS NULL OR INSTR(CAST(`last_error` AS BINARY), ?) > 0)
    AND (? IS NULL OR `settled_at` < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND)
    AND (? IS NULL OR `settled_at` > UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND)
GROUP BY 1, 2
ORDER BY 3 DESC, 1, 2
LIMIT ?
