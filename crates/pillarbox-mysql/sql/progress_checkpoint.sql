-- How far a perspective has come in a stream.
SELECT `position`, `message_id`, `state`, LEFT(`error`, 4000), `changed_at`
FROM `pillarbox_outbox_checkpoint`
WHERE `stream` = ? AND `perspective` = ?
