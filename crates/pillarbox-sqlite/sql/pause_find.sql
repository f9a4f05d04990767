-- The pause of one route.
SELECT substr(route, 1, 700), substr(reason, 1, 255), substr(paused_by, 1, 255), paused_at, max(now - paused_at, 0)
  FROM pillarbox_outbox_now CROSS JOIN pillarbox_outbox_pause
 WHERE route = ?1;
