-- Every pause, the oldest first. Others may have written longer texts than we do; they are read as far as ours may be.
SELECT substr(route, 1, 700), substr(reason, 1, 255), substr(paused_by, 1, 255), paused_at, max(now - paused_at, 0)
  FROM pillarbox_outbox_now CROSS JOIN pillarbox_outbox_pause
 ORDER BY paused_at, route
 LIMIT ?1;
