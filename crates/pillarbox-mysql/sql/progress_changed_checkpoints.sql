-- Which checkpoints of the call with this fence were stored; the condition is repeated.
SELECT `stream`, `perspective` FROM `pillarbox_outbox_checkpoint`
WHERE `fence` = ? AND ((`stream` = ? AND `perspective` = ?))
