-- Pauses a route; one that is paused already stays as it is. Who wants to know what was asks first.
INSERT INTO `pillarbox_outbox_pause` (`route`, `reason`, `paused_by`, `paused_at`)
VALUES (?, ?, ?, UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE `route` = `route`
