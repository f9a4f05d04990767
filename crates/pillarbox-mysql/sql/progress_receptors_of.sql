-- What receptors have made of a message. Others may have written longer texts than we do; they are read as far as ours may be.
SELECT `receptor`, `state`, LEFT(`error`, 4000), `attempts`, `changed_at`
FROM `pillarbox_outbox_receptor`
WHERE `message_id` = ?
ORDER BY `receptor`
LIMIT ?
