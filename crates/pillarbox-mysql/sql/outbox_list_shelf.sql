-- A page of one state of the shelf; ages count from the settlement, or from the start while the message waits.
SELECT `id`, `message_id`, `topic`, `payload`, `created_at`, `due_at`, `expires_at`, `attempts`, `lost_lease_count`,
    `priority`, `message_type`, `aggregate_type`, `aggregate_id`, `tenant_id`, `message_key`, `correlation_id`,
    `causation_id`, `content_type`, `headers`, `occurred_at`, `last_error`, `state`, `settled_at`, `settled_by`,
    `is_receipt`
FROM `pillarbox_outbox_shelf`
WHERE `id` > ? AND `state` = ?
    AND (TRUE /*only*/)
    AND (? IS NULL OR CAST(`topic` AS BINARY) = ?) AND (? IS NULL OR CAST(`correlation_id` AS BINARY) = ?)
    AND (? IS NULL OR INSTR(CAST(`last_error` AS BINARY), ?) > 0)
    AND (? IS NULL OR COALESCE(`settled_at`, `created_at`) < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND)
    AND (? IS NULL OR COALESCE(`settled_at`, `created_at`) > UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND)
ORDER BY `id` LIMIT ?
