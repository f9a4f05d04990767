-- Dead messages start anew; the last error stays to be read. The program puts another state in the place of this one.
-- A header counts the replay, so that a broker can tell it from what it repeats; headers that cannot be read stay as they are.
-- The fence -1 says that a row came back to its place, perhaps before one of its key that is held.
INSERT INTO `pillarbox_outbox`
    (`id`, `message_id`, `fence`, `topic`, `payload`, `created_at`, `due_at`, `expires_at`, `attempts`, `lost_lease_count`,
    `priority`, `message_type`, `aggregate_type`, `aggregate_id`, `tenant_id`, `message_key`, `key_hash`, `correlation_id`,
    `causation_id`, `content_type`, `headers`, `occurred_at`, `last_error`)
SELECT `id`, `message_id`, -1, `topic`, `payload`, `created_at`, NULL, NULL, 0, 0, `priority`, `message_type`,
    `aggregate_type`, `aggregate_id`, `tenant_id`, `message_key`, `key_hash`, `correlation_id`, `causation_id`, `content_type`,
    CASE WHEN `headers` IS NULL THEN '{"pillarbox-replay": "1"}'
        WHEN NOT JSON_VALID(`headers`) THEN `headers`
        WHEN JSON_TYPE(`headers`) <> 'OBJECT' THEN `headers`
        ELSE JSON_SET(`headers`, '$."pillarbox-replay"', CAST(1 + CASE
            WHEN JSON_UNQUOTE(JSON_EXTRACT(`headers`, '$."pillarbox-replay"')) REGEXP '^[0-9]{1,9}$'
            THEN CAST(JSON_UNQUOTE(JSON_EXTRACT(`headers`, '$."pillarbox-replay"')) AS UNSIGNED)
            ELSE 0 END AS CHAR)) END,
    `occurred_at`, `last_error`
FROM `pillarbox_outbox_shelf` FORCE INDEX (PRIMARY)
WHERE `id` IN (0 /*ids*/) AND `state` = 'dead'
ON DUPLICATE KEY UPDATE `pillarbox_outbox`.`id` = `pillarbox_outbox`.`id`
