-- Those heard of within ?1 microseconds, and none whose sign lies further ahead: somebody wrote it, or the clock was set back.
-- Others may have written longer texts than we do; they are read as far as ours may be.
SELECT id, substr(service, 1, 255), substr(host, 1, 255), pid, substr(version, 1, 255), substr(metadata, 1, ?2),
       started_at, last_seen_at, max(now - last_seen_at, 0)
  FROM pillarbox_outbox_now CROSS JOIN pillarbox_outbox_instance
 WHERE abs(now - last_seen_at) < ?1
 ORDER BY id
 LIMIT ?3;
