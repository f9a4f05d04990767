-- The dry run of replay and delete. The program puts another state in the place of this one; a receipt is nothing that could
-- be replayed.
SELECT
    COUNT(IF(`is_receipt` = 0, 1, NULL)) AS `count`,
    MIN(IF(`is_receipt` = 0, `settled_at`, NULL)) AS `oldest`,
    MAX(IF(`is_receipt` = 0, `settled_at`, NULL)) AS `newest`,
    COUNT(IF(`is_receipt` <> 0, 1, NULL)) AS `receipts`
FROM `pillarbox_outbox_shelf`
WHERE `state` = 'dead'
    AND (TRUE /*only*/)
    AND (? IS NULL OR CAST(`topic` AS BINARY) = ?) AND (? IS NULL OR CAST(`correlation_id` AS BINARY) = ?)
    AND (? IS NULL OR INSTR(CAST(`last_error` AS BINARY), ?) > 0)
    AND (? IS NULL OR `settled_at` < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND)
    AND (? IS NULL OR `settled_at` > UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND)
