-- Checkpoints; the row is repeated. None moves backwards, and none that is done gives way at its position. The fence comes
-- first: it says for the other columns whether the row changes, and afterwards which rows did.
INSERT INTO `pillarbox_outbox_checkpoint`
    (`stream`, `perspective`, `position`, `message_id`, `state`, `error`, `changed_at`, `fence`)
VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6), ?)
ON DUPLICATE KEY UPDATE
    `fence` = IF(
        VALUES(`position`) > `position` OR (VALUES(`position`) = `position` AND `state` <> 'done'), VALUES(`fence`), `fence`),
    `position` = IF(`fence` = VALUES(`fence`), VALUES(`position`), `position`),
    `message_id` = IF(`fence` = VALUES(`fence`), VALUES(`message_id`), `message_id`),
    `state` = IF(`fence` = VALUES(`fence`), VALUES(`state`), `state`),
    `error` = IF(`fence` = VALUES(`fence`), VALUES(`error`), `error`),
    `changed_at` = IF(`fence` = VALUES(`fence`), VALUES(`changed_at`), `changed_at`)
