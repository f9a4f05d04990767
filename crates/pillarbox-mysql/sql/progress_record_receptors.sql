-- Results of receptors; the row is repeated. What is done stays done. The fence comes first: it says for the other columns
-- whether the row changes, and afterwards which rows did.
INSERT INTO `pillarbox_outbox_receptor` (`message_id`, `receptor`, `state`, `error`, `attempts`, `changed_at`, `fence`)
VALUES (?, ?, ?, ?, 1, UTC_TIMESTAMP(6), ?)
ON DUPLICATE KEY UPDATE
    `fence` = IF(`state` <> 'done', VALUES(`fence`), `fence`),
    `state` = IF(`fence` = VALUES(`fence`), VALUES(`state`), `state`),
    `error` = IF(`fence` = VALUES(`fence`), VALUES(`error`), `error`),
    `attempts` = IF(`fence` = VALUES(`fence`), LEAST(`attempts`, 2147483646) + 1, `attempts`),
    `changed_at` = IF(`fence` = VALUES(`fence`), VALUES(`changed_at`), `changed_at`)
