-- How long the oldest message waits that could be claimed now, and the leases that run or ran out.
SELECT
    (
        SELECT MAX(TIMESTAMPDIFF(MICROSECOND, COALESCE(`due_at`, `created_at`), UTC_TIMESTAMP(6)))
        FROM (
            SELECT `due_at`, `created_at` FROM `pillarbox_outbox`
            WHERE `owner_token` IS NULL AND (`due_at` IS NULL OR `due_at` <= UTC_TIMESTAMP(6))
                AND (`expires_at` IS NULL OR `expires_at` > UTC_TIMESTAMP(6))
            UNION ALL
            SELECT `due_at`, `created_at` FROM `pillarbox_outbox_shelf`
            WHERE `state` = 'pending' AND `wake_at` <= UTC_TIMESTAMP(6) AND `due_at` <= UTC_TIMESTAMP(6)
                AND (`expires_at` IS NULL OR `expires_at` > UTC_TIMESTAMP(6))
        ) AS w
    ) AS `oldest`,
    (SELECT COUNT(*) FROM `pillarbox_outbox` WHERE `locked_until` > UTC_TIMESTAMP(6)) AS `active`,
    (SELECT COUNT(*) FROM `pillarbox_outbox` WHERE `locked_until` <= UTC_TIMESTAMP(6)) AS `expired`
